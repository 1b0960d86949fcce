"""What `up` will do on this machine, decided from facts alone and said before anything is done. Pure."""

from dataclasses import dataclass
from enum import Enum

from localcluster import versions
from localcluster.facts import Facts
from localcluster.report import Trouble

LEAST_DISK_GB = 15.0
LEAST_DISK_WARM_GB = 5.0
LEAST_MEMORY_GB = 6.0


class Source(Enum):
    """Where an image comes from on this machine."""

    HERE = "it is here"
    PULL = "it is pulled"
    LOAD = "the archive saved earlier is loaded"
    MAKE = "it is made from packages"


@dataclass(frozen=True)
class Plan:
    """What this machine needs. `lines` says it to the user, with the reason."""

    node: Source
    base: Source
    registry: Source
    tools: tuple[str, ...]
    """kind, kubectl, helm: those to be compiled."""
    packages: bool
    """Debian packages that making needs are installed first."""
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
    """The plan for a machine whose engine runs. `registry`: can it pull? None where nothing needs pulling."""
    if facts.docker_cli is None:
        raise Trouble(
            "no docker command here can build with BuildKit",
            "install docker.io (Debian, Ubuntu) or the docker-buildx plug-in",
        )
    lines = [
        "engine: " + ("the one started for this" if facts.engine_ours else "the machine's own, as it is")
    ]
    if facts.cluster_exists:
        lines.append("cluster: there is one; it is checked, and brought back if it is down")
        node = Source.HERE
    else:
        node, why = _node(facts, registry)
        lines.append(f"cluster: none yet; {why}; the node image: {node.value}")
    # The question whether a registry answers was put by pulling the base image.
    base = Source.HERE if facts.base_image or registry else Source.MAKE
    beside = Source.HERE if facts.registry_image else Source.PULL if registry else Source.MAKE
    tools = tuple(name for name in ("kind", "kubectl", "helm") if getattr(facts, name) is None)
    if tools:
        lines.append(f"tools: {', '.join(tools)} compiled from Go modules (none good enough on the PATH)")
    made = [
        name
        for name, source in (("node", node), ("base", base), ("registry", beside))
        if source is Source.MAKE
    ]
    if made:
        long = " (10 to 15 minutes, once)" if "node" in made else ""
        lines.append(f"images made from packages: {', '.join(made)}{long}")
    compiled = [*tools, *(f"the {name} image" for name in made if name != "base")]
    if compiled:
        require_go(facts, ", ".join(compiled))
    from_debian = Source.MAKE in (node, base)
    if from_debian and not (facts.root and facts.debian_like):
        raise Trouble(
            "images must be made from Debian packages, which needs root on Debian or Ubuntu",
            "run this as root there, or give the Docker engine an image registry it can pull from",
        )
    lacking = from_debian and not (facts.mmdebstrap and facts.compiler)
    lacking = lacking or ((Source.MAKE in (node, base) or node is Source.LOAD) and not facts.zstd)
    if lacking:
        lines.append("packages: what making images needs is installed (mmdebstrap, zstd, a C compiler)")
    return Plan(node=node, base=base, registry=beside, tools=tools, packages=lacking, lines=tuple(lines))


def _node(facts: Facts, registry: bool | None) -> tuple[Source, str]:
    if registry and not facts.cgroup_v1:
        return Source.PULL, "the engine can pull images"
    why = "this machine has cgroup v1, which newer nodes refuse" if registry else "no image registry answers"
    if facts.node_image:
        return Source.HERE, "the one made earlier is used" if registry is None else why
    return (Source.LOAD if facts.node_archive else Source.MAKE), why


def require_go(facts: Facts, what: str) -> None:
    """Refuse, with what to do, where `what` must be compiled and cannot be."""
    oldest = ".".join(map(str, versions.OLDEST_GO))
    if facts.go is None:
        raise Trouble(f"there is no Go, but this must be compiled: {what}", f"install Go {oldest} or newer")
    if facts.go < versions.OLDEST_GO:
        found = ".".join(map(str, facts.go))
        raise Trouble(f"Go {found} is too old to compile: {what}", f"install Go {oldest} or newer")


def needs_pull(facts: Facts) -> bool:
    """Whether it matters if a registry can be reached: something is missing that a registry would give."""
    if facts.cluster_exists:
        return not (facts.base_image and facts.registry_image)
    return not (facts.node_image and facts.base_image and facts.registry_image)
