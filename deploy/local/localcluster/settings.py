"""What a user may choose, from the environment, with the reason and what breaks when it is wrong."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from localcluster.report import Trouble

REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Settings:
    """One run's choices. `from_env` is the only reader of the environment for them."""

    cache: Path
    """Everything we make or start is below this directory; `clean-cache` removes it whole."""
    cluster: str = "topicbinding"
    """kind's cluster name; the context is `kind-<name>`. Another name makes another cluster beside it."""
    registry_port: int = 5001
    """Loopback port of the image registry; part of every image's name, so a change rebuilds all."""
    kafka_port: int = 9092
    """Loopback port of broker 0, PLAINTEXT; brokers 1 and 2 follow at +100 and +200."""
    kafka_sasl_port: int = 9093
    """Loopback port of broker 0, SASL_SSL; brokers 1 and 2 follow at +100 and +200."""
    page_port: int = 8080
    """Loopback port of the page."""
    kafka_replicas: int = 1
    """1, or 3 for fault tests. A change deletes the development broker's data."""
    two_nodes: bool = False
    """The second cluster, of two nodes and without host ports, that may stand beside the first."""

    @property
    def kubeconfig(self) -> Path:
        """Our own file, so that the user's current context is never switched."""
        return self.cache / ("kubeconfig-two" if self.two_nodes else "kubeconfig")

    @property
    def bin(self) -> Path:
        """Where the tools are that we made; goes first on the PATH of everything we call."""
        return self.cache / "bin"

    @property
    def made(self) -> Path:
        """What was made from packages, each entry complete (written aside, then renamed)."""
        return self.cache / "made"

    @property
    def registry(self) -> str:
        """How the host and the nodes both name the registry."""
        return f"localhost:{self.registry_port}"

    @property
    def registry_container(self) -> str:
        return "topicbinding-registry"

    def with_two_nodes(self) -> "Settings":
        """The same choices for the cluster of two nodes."""
        return replace(self, cluster=f"{self.cluster}-two", two_nodes=True)

    @property
    def control_plane(self) -> str:
        """The node container's name, as kind gives it."""
        return f"{self.cluster}-control-plane"

    def host_ports(self) -> dict[int, int]:
        """NodePort (as written in kind-config.yaml) -> the loopback port wanted on the host."""
        if self.two_nodes:
            return {}
        ports = {30080: self.page_port}
        for broker in range(3):
            ports[30092 + 100 * broker] = self.kafka_port + 100 * broker
            ports[30093 + 100 * broker] = self.kafka_sasl_port + 100 * broker
        return ports

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        """Read the choices; anything that is not a usable value is refused with its name."""
        home = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or str(Path.home()), ".cache")
        replicas = _number(env, "KAFKA_REPLICAS", 1)
        if replicas not in (1, 3):
            raise Trouble(f"KAFKA_REPLICAS is {replicas}", "use 1, or 3 for fault tests")
        chosen = cls(
            cache=Path(home) / "topicbinding",
            registry_port=_port(env, "REGISTRY_PORT", 5001),
            kafka_port=_port(env, "KAFKA_PORT", 9092),
            kafka_sasl_port=_port(env, "KAFKA_SASL_PORT", 9093),
            page_port=_port(env, "PAGE_PORT", 8080),
            kafka_replicas=replicas,
        )
        ports = [*chosen.host_ports().values(), chosen.registry_port]
        if len(set(ports)) != len(ports):
            raise Trouble(
                f"two of the chosen ports are the same: {sorted(ports)}", "choose ports that differ"
            )
        return chosen


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise Trouble(
            f"{name} is {text!r}, which is not a number", f"unset it or use a number such as {default}"
        ) from None


def _port(env: Mapping[str, str], name: str, default: int) -> int:
    port = _number(env, name, default)
    # +200 must still be a port, for the third broker.
    if not 1 <= port <= 65335:
        raise Trouble(
            f"{name} is {port}, which is not a usable port",
            f"use a number from 1 to 65335, such as {default}",
        )
    return port
