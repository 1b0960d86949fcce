"""The Docker engine: installing and starting one where there is none, and stopping what we started.

An engine that was there before us is used as it is and never reconfigured.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from localcluster import facts, firewall
from localcluster.binaries import make_runc_caps
from localcluster.making import remove
from localcluster.report import Trouble, step
from localcluster.settings import Settings
from localcluster.shell import run, run_logged, wait_until

ENGINE_PACKAGES = ("docker.io", "iptables", "iproute2")
MAKING_PACKAGES = ("mmdebstrap", "debian-archive-keyring", "zstd", "gcc", "libc6-dev", "xz-utils")
SYSTEMD_MARK = "docker-service-started"


def install_packages(settings: Settings, packages: tuple[str, ...]) -> None:
    """Install Debian packages without a question."""
    log = settings.cache / "logs" / "apt.log"
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with step("packages", "apt-get install " + " ".join(packages)):
        run_logged(["apt-get", "update", "-qq"], log, env=quiet)
        run_logged(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], log, env=quiet)


def start(settings: Settings, *, systemd: bool, missing_sys_resource: bool) -> None:
    """Start the system's service under systemd, else a dockerd of our own with its data in our cache."""
    if systemd:
        with step("engine", "start the docker service"):
            run(["systemctl", "start", "docker"], do="look at `journalctl -u docker`")
            (settings.cache / SYSTEMD_MARK).touch()
            wait_until("the Docker engine answers", facts.engine_answers, seconds=30)
        return
    runtime: list[str | Path] = []
    if missing_sys_resource:
        front = make_runc_caps(settings)
        runtime = ["--add-runtime", f"runc-caps={front}", "--default-runtime", "runc-caps"]
    log = settings.cache / "logs" / "dockerd.log"
    with step("engine", "start dockerd"):
        _forget_dead_engine(settings)
        firewall.remove_stale_links()
        firewall.remember(settings.cache / "network-before.json")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            subprocess.Popen(
                [
                    "dockerd",
                    f"--data-root={settings.cache / 'docker'}",
                    f"--pidfile={settings.cache / 'dockerd.pid'}",
                    # Docker assumes 1500; a smaller uplink would lose the large packets of downloads.
                    f"--mtu={firewall.uplink_mtu()}",
                    *map(str, runtime),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        wait_until("the Docker engine answers", facts.engine_answers, seconds=120, do=f"look at {log}")


def wake_for_removal(settings: Settings) -> None:
    """After a hard kill our containers are still there: only a running engine can remove them."""
    left = settings.cache / "docker" / "containers"
    if facts.engine_answers() or not left.is_dir() or not any(left.iterdir()):
        return
    found = facts.look(settings)
    start(settings, systemd=found.systemd, missing_sys_resource=found.missing_sys_resource)


def stop(settings: Settings) -> None:
    """Stop the engine if we started it, and remove the firewall chains and the bridge it leaves behind."""
    mark = settings.cache / SYSTEMD_MARK
    if mark.exists():
        with step("engine", "stop the docker service that was started for the cluster"):
            run(["systemctl", "stop", "docker.socket", "docker"], check=False)
            mark.unlink()
        return
    pid = facts.our_dockerd(settings)
    if pid is None:
        return
    with step("engine", "stop dockerd"):
        os.kill(pid, signal.SIGTERM)
        wait_until("dockerd ends", lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), seconds=60)
        _forget_dead_engine(settings)
        unmount_data(settings)
        firewall.remove_docker_traces()
        firewall.restore(settings.cache / "network-before.json")


def unmount_data(settings: Settings) -> None:
    """dockerd mounts its data directory onto itself and leaves it so; it could not be removed."""
    data = settings.cache / "docker"
    # Not os.path.ismount: it does not see a directory that is mounted onto itself.
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if str(data) in points:
        run(["umount", data], check=False)


def _is_zombie(pid: int) -> bool:
    # Where nobody reaps orphans a finished process stays in the table for ever.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def _forget_dead_engine(settings: Settings) -> None:
    """After a hard kill: remove the stale files that would keep a new dockerd from starting."""
    if facts.our_dockerd(settings) is None:
        remove(settings.cache / "dockerd.pid")
    containerd_pid = Path("/var/run/docker/containerd/containerd.pid")
    try:
        pid = int(containerd_pid.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        remove(containerd_pid)
        return
    if b"/var/run/docker/containerd" not in command:
        # Another process has taken the number since; dockerd would wait for it.
        remove(containerd_pid)


def require_docker_cli() -> str:
    """The docker command to build with."""
    docker = facts.buildkit_docker()
    if docker is None:
        have = (
            "found no docker command"
            if shutil.which("docker") is None
            else "the docker command cannot build with BuildKit"
        )
        raise Trouble(have, "install docker.io (Debian, Ubuntu) or the docker-buildx plug-in")
    return docker
