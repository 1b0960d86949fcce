"""Looking at the machine, changing nothing. Called once at the start of `up`, `images` and `down`."""

import os
import re
import shutil
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from localcluster import versions
from localcluster.settings import Settings
from localcluster.shell import run

CAP_SYS_RESOURCE = 24
Version = tuple[int, int]


@dataclass(frozen=True)
class Facts:
    """What was found. Pure data: `plan` decides from it and from nothing else."""

    root: bool
    debian_like: bool
    systemd: bool
    cgroup_v1: bool
    missing_sys_resource: bool
    engine_running: bool
    engine_ours: bool
    engine_installed: bool
    docker_cli: str | None
    """A docker command that can build with BuildKit, or None."""
    go: Version | None
    mmdebstrap: bool
    zstd: bool
    compiler: bool
    kind: str | None
    kubectl: str | None
    helm: str | None
    """Tools on the PATH, or made earlier, that are good enough."""
    base_image: bool
    node_image: bool
    registry_image: bool
    node_archive: bool
    cluster_exists: bool
    free_disk_gb: float
    memory_gb: float
    taken_ports: tuple[int, ...]
    """Wanted loopback ports that somebody else listens on; not asked while no engine runs."""


def look(settings: Settings) -> Facts:
    """Find out what is there. Costs well under a second when the engine answers."""
    docker = buildkit_docker()
    running = engine_answers()
    images = _images() if running else frozenset()
    containers = _containers() if running else frozenset()
    exists = settings.control_plane in containers
    return Facts(
        root=os.geteuid() == 0,
        debian_like=is_debian_like(_read(Path("/etc/os-release"))),
        systemd=_read(Path("/proc/1/comm")).strip() == "systemd",
        cgroup_v1=not Path("/sys/fs/cgroup/cgroup.controllers").exists(),
        missing_sys_resource=lacks_capability(_read(Path("/proc/self/status")), CAP_SYS_RESOURCE),
        engine_running=running,
        engine_ours=our_dockerd(settings) is not None,
        engine_installed=shutil.which("dockerd") is not None,
        docker_cli=docker,
        go=go_version(),
        mmdebstrap=shutil.which("mmdebstrap") is not None,
        zstd=shutil.which("zstd") is not None,
        compiler=shutil.which("gcc") is not None,
        kind=_tool(settings, "kind", ["version"], versions.OLDEST_KIND),
        kubectl=_tool(settings, "kubectl", ["version", "--client"], versions.OLDEST_KUBECTL),
        helm=_tool(settings, "helm", ["version", "--short"], versions.OLDEST_HELM),
        base_image=versions.BASE_IMAGE in images,
        node_image=versions.MADE_NODE_IMAGE in images,
        registry_image=bool({versions.PULLED_REGISTRY_IMAGE, versions.MADE_REGISTRY_IMAGE} & images),
        node_archive=node_archive(settings).exists(),
        cluster_exists=exists,
        free_disk_gb=_free_disk_gb(settings.cache),
        memory_gb=memory_gb(_read(Path("/proc/meminfo"))),
        taken_ports=()
        if exists or not running
        else tuple(p for p in wanted_ports(settings, containers) if _listening(p)),
    )


def node_archive(settings: Settings) -> Path:
    """The saved node image: the cache worth most."""
    return settings.made / f"node-{versions.KUBERNETES}-{versions.node_key()}.tar.zst"


def wanted_ports(settings: Settings, containers: frozenset[str]) -> list[int]:
    """The loopback ports still to be taken by us."""
    ports = list(settings.host_ports().values())
    return ports if settings.registry_container in containers else [*ports, settings.registry_port]


# --- pure readers of what Linux and the tools print


def is_debian_like(os_release: str) -> bool:
    """Whether apt-get of Debian or Ubuntu is there to install from."""
    ids = re.findall(r'^(?:ID|ID_LIKE)="?([^"\n]*)"?$', os_release, re.MULTILINE)
    return bool({"debian", "ubuntu"} & {word for line in ids for word in line.split()})


def lacks_capability(status: str, bit: int) -> bool:
    """Whether the bounding set of this process, so of everything it starts, is without that capability."""
    match = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(match) and not int(match[1], 16) >> bit & 1 if match else False


def memory_gb(meminfo: str) -> float:
    """Total memory."""
    match = re.search(r"^MemTotal:\s*(\d+) kB", meminfo, re.MULTILINE)
    return int(match[1]) / 1e6 if match else 0.0


def parse_version(text: str) -> Version | None:
    """The first major.minor in a tool's version output."""
    match = re.search(r"v?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def new_enough(found: str, oldest: Version) -> bool:
    """Whether a tool's version output names that version or a later one of the same major version."""
    version = parse_version(found)
    return version is not None and version[0] == oldest[0] and version >= oldest


def can_buildkit(client_version: str, has_buildx: bool) -> bool:
    """Up to 22 the docker command carries BuildKit itself; later ones need the buildx plug-in."""
    version = parse_version(client_version)
    return version is not None and (has_buildx or version[0] < 23)


# --- questions to the machine


def engine_answers() -> bool:
    """Whether a Docker engine answers this user."""
    if shutil.which("docker") is None:
        return False
    return (
        run(["docker", "version", "--format", "{{.Server.Version}}"], check=False, timeout=10).returncode == 0
    )


def buildkit_docker() -> str | None:
    """The first docker command on the PATH that can build with BuildKit."""
    seen: list[str] = []
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        candidate = os.path.join(directory, "docker")
        if candidate in seen or not os.access(candidate, os.X_OK):
            continue
        seen.append(candidate)
        client = run([candidate, "--version"], check=False, timeout=10).stdout
        buildx = run([candidate, "buildx", "version"], check=False, timeout=10).returncode == 0
        if can_buildkit(client.removeprefix("Docker version "), buildx):
            return candidate
    return None


def our_dockerd(settings: Settings) -> int | None:
    """The process id of the dockerd that we started, if it still runs; a stale pid file is nobody."""
    try:
        pid = int((settings.cache / "dockerd.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if command[0].endswith(b"dockerd") else None


def go_version() -> Version | None:
    """The Go tool chain's version."""
    if shutil.which("go") is None:
        return None
    return parse_version(run(["go", "env", "GOVERSION"], check=False, timeout=20).stdout.removeprefix("go"))


def registry_reachable(image: str, *, seconds: float = 15) -> bool:
    """Whether the engine can pull `image`; if so it is pulled.

    The engine says "Pulling from" once it has the manifest. Until then the deadline is short, afterwards the
    download may take its time. No registry's name is needed: the engine knows where it pulls from.
    """
    process = subprocess.Popen(
        ["docker", "pull", image],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 (a pipe was asked for)
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            if "Pulling from" in line:
                timer.cancel()
        return process.wait() == 0
    finally:
        timer.cancel()
        process.stdout.close()


def _tool(settings: Settings, name: str, version: list[str], oldest: Version) -> str | None:
    """The path of a good enough tool: ours first, else the user's."""
    made = settings.bin / name
    for path in (str(made) if made.exists() else None, shutil.which(name)):
        if path and new_enough(run([path, *version], check=False, timeout=20).stdout, oldest):
            return path
    return None


def _images() -> frozenset[str]:
    return frozenset(run(["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"]).stdout.split())


def _containers() -> frozenset[str]:
    return frozenset(run(["docker", "container", "ls", "-a", "--format", "{{.Names}}"]).stdout.split())


def _free_disk_gb(path: Path) -> float:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free / 1e9


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
