"""What the driver is told by its pod: one frozen object, read from the environment once, at the start.

Every tunable of the program has its name here, with its unit, the reason for its value, and what goes wrong
when it is wrong. What people choose (topics, tables, sizes) comes from the Generation instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topicbinding.api import names


class SettingsError(ValueError):
    """The environment does not make sense; the message says which variable."""


@dataclass(frozen=True)
class Settings:
    """Where the driver runs, and its tunables."""

    namespace: str
    generation: str
    pod_name: str = ""
    pod_ip: str = "127.0.0.1"
    pod_uid: str = ""
    gateway_subject: str = ""
    memory: int = 1536 * 1024 * 1024
    """Bytes the whole pod may use. Heap, state and tables share it; too small a value means an OOM kill."""
    cores: int = 2
    image: str = ""
    listen_host: str = "0.0.0.0"  # noqa: S104 - a pod is reached by its own address; NetworkPolicy limits by whom
    listen_port: int = names.DRIVER_PORT
    auth: bool = True
    jars: Path | None = None
    """Directory of connector jars, where they are not among pyspark's own (tests)."""
    checkpoint_root: str = names.CHECKPOINT_DIR
    secret_dir: Path = Path(names.KAFKA_SECRET_DIR)
    archive: Path = Path("/opt/topicbinding/app.jsa")
    """AppCDS archive of the image; without it a cold start takes twice as long."""
    termination_log: Path = Path("/dev/termination-log")
    scratch: Path = Path("/tmp")  # noqa: S108 - the pod's own emptyDir

    kafka_timeout: float = 10.0
    """Seconds a broker may take to answer the first questions; longer only delays the bad news."""
    batch_rows: int = 250_000
    """Rows of one topic in one micro-batch of the backlog: larger ones are a little faster, but progress is
    seen less often and the batch stands in memory several times."""
    report_seconds: float = 1.0
    """Between two reports of lag and rows; phase changes are reported at once."""
    realtime_batch: str = "300 seconds"
    """Length of a real-time batch. Its end costs a stall of a second or two; what is read again when a query
    has to be started anew is one."""
    change_over_seconds: float = 45.0
    """Real time that has not started by then counts as failed, and micro-batches go on."""
    stop_seconds: float = 12.0
    """After SIGTERM: then the JVM is killed. Must stay below the pod's grace period of 20 s."""
    ingest_port: int = 7080
    """Where executors send the rows of real time; inside the driver any free port on the loopback address
    does."""
    slots: int = 32
    """Threads for tasks inside the driver. Real-time tasks run all the time and mostly wait, so there may be
    many more than cores; each Kafka partition needs one."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Settings:
        env = os.environ if env is None else env
        missing = [name for name in ("TB_NAMESPACE", "TB_GENERATION") if not env.get(name)]
        if missing:
            raise SettingsError(f"missing from the environment: {', '.join(missing)}")
        auth = env.get("TB_AUTH", "token")
        if auth not in ("token", "none"):
            raise SettingsError(f"TB_AUTH is {auth!r}; it must be 'token' or 'none'")
        host = env.get("TB_LISTEN", "0.0.0.0")  # noqa: S104 - see listen_host
        if auth == "none" and host not in ("127.0.0.1", "::1", "localhost"):
            raise SettingsError("TB_AUTH=none is refused unless TB_LISTEN is a loopback address")
        jars = env.get("TB_JARS")
        return cls(
            namespace=env["TB_NAMESPACE"],
            generation=env["TB_GENERATION"],
            pod_name=env.get("POD_NAME", ""),
            pod_ip=env.get("POD_IP") or "127.0.0.1",
            pod_uid=env.get("POD_UID", ""),
            gateway_subject=env.get("TB_GATEWAY_SUBJECT", ""),
            memory=_number(env, "TB_MEMORY", cls.memory),
            cores=_number(env, "TB_CORES", cls.cores),
            image=env.get("TB_IMAGE", ""),
            listen_host=host,
            listen_port=_number(env, "TB_PORT", cls.listen_port),
            auth=auth == "token",
            jars=Path(jars) if jars else None,
            checkpoint_root=env.get("TB_CHECKPOINT", cls.checkpoint_root),
            secret_dir=Path(env.get("TB_KAFKA_SECRET", names.KAFKA_SECRET_DIR)),
            archive=Path(env.get("TB_ARCHIVE", str(cls.archive))),
            termination_log=Path(env.get("TB_TERMINATION_LOG", str(cls.termination_log))),
            scratch=Path(env.get("TMPDIR", str(cls.scratch))),
        )


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name)
    if not text:
        return default
    if not text.isdigit() or int(text) < 1:
        raise SettingsError(f"{name} is {text!r}; it must be a whole number above 0")
    return int(text)
