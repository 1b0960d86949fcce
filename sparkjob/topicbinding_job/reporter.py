"""Reports the driver's state on its Generation: phase changes at once, figures about once a second, nothing
twice.

A thread of its own, so that an API server that is away never slows the query down. `driver` starts it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

from topicbinding_job.kube import ApiAway, GenerationGone, GenerationPort
from topicbinding_job.state import DriverState, now_iso

logger = logging.getLogger(__name__)

UNCHANGED_SECONDS: Final = 15.0
"""So often an idle generation says that it is alive; a thousand of them must not keep the API server busy."""
MAX_WAIT: Final = 5.0


class Reporter:
    """Keeps the Generation's status true."""

    def __init__(self, port: GenerationPort, state: DriverState, seconds: float) -> None:
        self._port = port
        self._state = state
        self._seconds = seconds
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._said: dict[str, Any] = {}
        self._said_at = 0.0
        self._once = threading.Lock()
        self.gone = threading.Event()
        """Set when our Generation was deleted."""
        state.on_phase(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def say_now(self, stop: threading.Event) -> bool:
        """Report and return when it is written: for what must stand before we go on. False if asked to
        stop."""
        wait = 0.2
        while not stop.is_set():
            try:
                self._say()
                return True
            except ApiAway as trouble:
                logger.warning("cannot report yet: %s", trouble)
                stop.wait(wait)
                wait = min(wait * 2, MAX_WAIT)
        return False

    def close(self, seconds: float = 2.0) -> None:
        """A last report, if the API server takes it."""
        self._stop.set()
        self._wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        wait = self._seconds
        while True:
            self._wake.wait(wait)
            self._wake.clear()
            stopping = self._stop.is_set()
            try:
                self._say()
                wait = self._seconds
            except ApiAway as trouble:
                logger.warning("the API server does not take the report: %s", trouble)
                wait = min(wait * 2, MAX_WAIT)
            except GenerationGone:
                logger.warning("our Generation is gone")
                self.gone.set()
                return
            if stopping:
                return

    def _say(self) -> None:
        with self._once:
            status = self._state.status()
            changed = {name: value for name, value in status.items() if self._said.get(name) != value}
            if not changed and time.monotonic() - self._said_at < UNCHANGED_SECONDS:
                return
            self._port.report({**changed, "updatedAt": now_iso()})
            self._said, self._said_at = status, time.monotonic()
