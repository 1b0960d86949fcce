"""How the program ends: the termination log that Kubernetes shows, and a JVM that must not outlive us.

Called by `driver` last of all.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext

logger = logging.getLogger(__name__)

MESSAGE_LENGTH: Final = 3000
"""Kubernetes keeps 4 KiB of a termination message."""


def write_termination_log(path: Path, reason: str, message: str) -> None:
    """Why we end, for `kubectl describe`. Failing to say so must not hide the reason itself."""
    with contextlib.suppress(OSError):
        path.write_text(json.dumps({"reason": reason, "message": message[:MESSAGE_LENGTH]}))


def jvm_process() -> Any:
    """The JVM we started, if there is one."""
    gateway: Any = SparkContext._gateway
    return getattr(gateway, "proc", None)


def jvm_exit_code() -> int | None:
    """What the JVM ended with; None while it lives."""
    process = jvm_process()
    code: int | None = None if process is None else process.poll()
    return code


def stop_jvm(seconds: float) -> bool:
    """Stop Spark and the JVM; after `seconds` kill it. True if it went by itself.

    RocksDB's threads can keep a JVM from ever ending, and a JVM that hangs would hold the pod until it is
    killed with everything in it.
    """
    process = jvm_process()
    if process is None:
        return True
    stopping = threading.Thread(target=_stop_spark, name="stop-spark", daemon=True)
    stopping.start()
    stopping.join(seconds)
    went = not stopping.is_alive()
    if not went:
        logger.warning("Spark did not stop within %.0f s", seconds)
    for kind, patience in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 2.0)):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, kind)
        with contextlib.suppress(Exception):
            process.wait(patience)
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    return went


def _stop_spark() -> None:
    context = SparkContext._active_spark_context
    if context is not None:
        with contextlib.suppress(Exception):
            context.stop()
