"""The real bridge that kills itself at a named point: `python -m tests.support.dying_bridge POINT`.

A crash is only a crash if nothing runs afterwards: the process kills itself with SIGKILL, in the middle of
what it does against the real broker and the real API server.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from topicbinding.bridge.kube import Kube
from topicbinding.bridge.main import main

POINTS = ("before-patch", "after-patch", "after-status", "after-event")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Puts the end of the process right before or after the named request."""
    patch, apply_status, event = Kube.patch, Kube.apply_status, Kube.event

    def dying_patch(self: Kube, body: Mapping[str, Any]) -> dict[str, Any]:
        if point == "before-patch":
            die()
        answer = patch(self, body)
        if point == "after-patch":
            die()
        dying_patch.done = True  # type: ignore[attr-defined]
        return answer

    def dying_status(self: Kube, status: Mapping[str, Any]) -> None:
        apply_status(self, status)
        if point == "after-status" and getattr(dying_patch, "done", False):
            die()

    def dying_event(self: Kube, identity: str, kind: str, reason: str, message: str) -> None:
        event(self, identity, kind, reason, message)
        if point == "after-event" and getattr(dying_patch, "done", False):
            die()

    Kube.patch = dying_patch  # type: ignore[method-assign]
    Kube.apply_status = dying_status  # type: ignore[method-assign]
    Kube.event = dying_event  # type: ignore[method-assign]


if __name__ == "__main__":
    assert sys.argv[1] in POINTS
    arm(sys.argv[1])
    sys.exit(main([]))
