"""The few network rules we make, marked as ours, and their removal. Only for an engine that we started."""

import json
import re
from pathlib import Path

from localcluster.shell import run

MARK = "topicbinding-local"
DOCKER_BRIDGE = re.compile(r"docker0|br-[0-9a-f]{12}")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
# Service and pod addresses of the cluster. One that no rule catches must not leave the machine: out there
# something else may answer it, and a test would take a stranger's answer for ours.
CLUSTER_ADDRESSES = ("10.96.0.0/16", "10.244.0.0/16")


def uplink() -> str | None:
    """The interface of the default route."""
    match = re.search(
        r"^default .*?\bdev (\S+)",
        run(["ip", "-4", "route", "show", "default"], check=False).stdout,
        re.MULTILINE,
    )
    return match[1] if match else None


def uplink_mtu() -> int:
    """The uplink's packet size; Docker's own default where there is no uplink."""
    name = uplink()
    path = Path(f"/sys/class/net/{name}/mtu")
    return int(path.read_text()) if name and path.exists() else 1500


def _rule(address: str, out: str) -> list[str]:
    return ["DOCKER-USER", "-o", out, "-d", address, "-m", "comment", "--comment", MARK, "-j", "REJECT"]


def keep_cluster_addresses_in() -> None:
    """Refuse cluster addresses on their way out."""
    out = uplink()
    if out is None:
        return
    for address in CLUSTER_ADDRESSES:
        if run(["iptables", "-w", "-C", *_rule(address, out)], check=False).returncode != 0:
            run(["iptables", "-w", "-I", *_rule(address, out)])


def let_cluster_addresses_out() -> None:
    """Remove every rule that carries our mark, whatever the uplink was called when it was made."""
    for line in run(["iptables", "-w", "-S", "DOCKER-USER"], check=False).stdout.splitlines():
        if MARK in line:
            run(["iptables", "-w", "-D", *line.replace('"', "").split()[1:]], check=False)


def remove_docker_traces() -> None:
    """What a stopped dockerd leaves: chains, the jumps to them, masquerading rules, the docker0 bridge."""
    for table in ("filter", "nat"):
        listing = run(["iptables", "-w", "-t", table, "-S"], check=False).stdout.splitlines()
        for line in listing:
            words = line.replace('"', "").split()
            if words[0] == "-A" and not words[1].startswith("DOCKER") and _is_dockers(line):
                run(["iptables", "-w", "-t", table, "-D", *words[1:]], check=False)
        chains = [line.split()[1] for line in listing if line.startswith("-N DOCKER")]
        for verb in ("-F", "-X"):
            for chain in chains:
                run(["iptables", "-w", "-t", table, verb, chain], check=False)
    run(["ip", "link", "delete", "docker0"], check=False)


def remove_stale_links() -> None:
    """The cables of containers whose engine was killed.

    The kernel keeps a dead container's network for a minute or two. A container started again gets the same
    addresses, so until then half of its packets would go to the dead one.
    """
    for link in json.loads(run(["ip", "-json", "link", "show", "type", "veth"], check=False).stdout or "[]"):
        if DOCKER_BRIDGE.fullmatch(link.get("master", "")):
            run(["ip", "link", "delete", link["ifname"]], check=False)


def remember(place: Path) -> None:
    """Keep what dockerd is about to change for everybody, once: a second start must not keep the change."""
    if not place.exists():
        policy = run(["iptables", "-w", "-S", "FORWARD"], check=False).stdout.split("\n")[0].split()
        before = {"policy": policy[-1] if policy else "ACCEPT", "forward": FORWARDING.read_text().strip()}
        place.write_text(json.dumps(before))


def restore(place: Path) -> None:
    """Put it back."""
    if place.exists():
        before = json.loads(place.read_text())
        run(["iptables", "-w", "-P", "FORWARD", before["policy"]], check=False)
        FORWARDING.write_text(before["forward"])
        place.unlink()


def _is_dockers(rule: str) -> bool:
    return (
        "DOCKER" in rule
        or "docker0" in rule
        or "-s 172.17.0.0/16" in rule
        or re.search(r"\bbr-[0-9a-f]{12}\b", rule) is not None
    )
