"""What `up` will do on this machine, decided from facts alone and said before anything is done. Pure."""

from dataclasses import dataclass

from localcluster import versions
from localcluster.facts import Facts
from localcluster.report import Trouble

LEAST_DISK_GB = 15.0
LEAST_DISK_WARM_GB = 5.0
LEAST_MEMORY_GB = 6.0


@dataclass(frozen=True)
class Plan:
    """Which steps this machine needs. `lines` says them to the user, with the reason."""

    install_engine: bool
    start_engine: bool
    install_making_packages: bool
    make_images: bool
    """No registry answers (or a pulled node would not boot here): base, node and registry images are made."""
    make_kind: bool
    make_kubectl: bool
    make_helm: bool
    lines: tuple[str, ...]


def before_engine(facts: Facts) -> tuple[bool, bool]:
    """(install an engine?, start one?), or the reason why neither can be done."""
    if facts.engine_running:
        return False, False
    if not facts.root:
        if facts.engine_installed:
            raise Trouble(
                "a Docker engine is installed but does not answer this user",
                "start it (`sudo systemctl start docker`) and let this user talk to it"
                " (`sudo usermod -aG docker $USER`, then log in again)",
            )
        raise Trouble(
            "there is no Docker engine",
            "install one: `sudo apt-get install docker.io` (Debian, Ubuntu), or run this as root",
        )
    if facts.engine_installed:
        return False, True
    if not facts.debian_like:
        raise Trouble(
            "there is no Docker engine, and this is neither Debian nor Ubuntu",
            "install Docker with the system's package manager and start it",
        )
    return True, True


def check_room(facts: Facts) -> None:
    """Refuse early what would fail late."""
    warm = facts.node_image or facts.node_archive
    least = LEAST_DISK_WARM_GB if warm else LEAST_DISK_GB
    if facts.free_disk_gb < least:
        raise Trouble(
            f"only {facts.free_disk_gb:.1f} GB of disk are free, {least:.0f} GB are needed",
            "free some space, or point XDG_CACHE_HOME at a larger disk",
        )
    if facts.memory_gb < LEAST_MEMORY_GB:
        raise Trouble(
            f"the machine has {facts.memory_gb:.1f} GB of memory, {LEAST_MEMORY_GB:.0f} GB are needed",
            "use a larger machine",
        )
    if facts.taken_ports:
        names = ", ".join(map(str, facts.taken_ports))
        raise Trouble(
            f"somebody else listens on port {names}",
            "stop it, or choose other ports with KAFKA_PORT, KAFKA_SASL_PORT, PAGE_PORT, REGISTRY_PORT",
        )


def decide(facts: Facts, *, registry: bool | None) -> Plan:
    """The plan for a machine whose engine runs. `registry` is None where nothing needs pulling."""
    lines: list[str] = []
    pulled_node_boots = not facts.cgroup_v1
    if facts.cluster_exists:
        make_images = not facts.registry_image and registry is not True
        lines.append("cluster: there is one; it is checked and brought back if it is down")
    elif registry and pulled_node_boots:
        make_images = False
        lines.append("images: the engine can pull, so kind pulls its node image")
    else:
        make_images = True
        why = (
            "no image registry answers"
            if not registry
            else "this machine has cgroup v1, which newer nodes refuse"
        )
        if facts.node_image:
            how = "and the node image made earlier is here"
        elif facts.node_archive:
            how = "so the node image saved earlier is loaded (half a minute)"
        else:
            how = "so node, base and registry images are made from packages (10 to 15 minutes, once)"
        lines.append(f"images: {why}, {how}")
    must_compile = make_images and not (facts.node_image or facts.node_archive)
    make_kind, make_kubectl, make_helm = facts.kind is None, facts.kubectl is None, facts.helm is None
    tools = [
        name for name, make in (("kind", make_kind), ("kubectl", make_kubectl), ("helm", make_helm)) if make
    ]
    if tools:
        lines.append(f"tools: {', '.join(tools)} compiled from Go modules (none good enough on the PATH)")
    needs_go = must_compile or bool(tools) or (make_images and not facts.registry_image)
    if needs_go and (facts.go is None or facts.go < versions.OLDEST_GO):
        have = "there is no Go" if facts.go is None else f"Go {facts.go[0]}.{facts.go[1]} is too old"
        wanted = ", ".join([*tools, *(["the node image"] if must_compile else [])]) or "the registry image"
        raise Trouble(
            f"{wanted} must be compiled, but {have}",
            f"install Go {versions.OLDEST_GO[0]}.{versions.OLDEST_GO[1]} or newer"
            + (f", or {' and '.join(tools)}" if tools and not must_compile else ""),
        )
    making_packages = False
    if (must_compile or (make_images and not facts.base_image)) and not (facts.mmdebstrap and facts.compiler):
        making_packages = True
        lines.append("packages: mmdebstrap, zstd and a C compiler are installed")
    if make_images and (must_compile or not facts.base_image) and not (facts.root and facts.debian_like):
        raise Trouble(
            "images must be made from Debian packages, which needs root on Debian or Ubuntu",
            "run this as root there, or give the Docker engine an image registry it can pull from",
        )
    return Plan(
        install_engine=False,
        start_engine=False,
        install_making_packages=making_packages,
        make_images=make_images,
        make_kind=make_kind,
        make_kubectl=make_kubectl,
        make_helm=make_helm,
        lines=tuple(lines),
    )


def needs_pull(facts: Facts) -> bool:
    """Whether it matters if a registry can be reached: something is missing that a registry would give."""
    if facts.cluster_exists:
        return not (facts.base_image and facts.registry_image)
    return not (facts.node_image and facts.base_image and facts.registry_image)
