"""The real bridge that kills itself at a named point: `python -m tests.support.dying_bridge POINT`.

At `lost-answer` it lives on, but its first patch's answer gets lost, as when a connection breaks.

A crash is only a crash if nothing runs afterwards: the process kills itself with SIGKILL, in the middle of
what it does against the real broker and the real API server.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from topicbinding.bridge.apiserver import Away
from topicbinding.bridge.kube import Kube
from topicbinding.bridge.main import main

LOST_ANSWER = "lost-answer"
POINTS = ("before-patch", "after-patch", "after-status", "after-event")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Puts the end of the process right before or after the named request."""
    patch, apply_status, event = Kube.patch, Kube.apply_status, Kube.event
    done: list[bool] = []

    def dying_patch(self: Kube, body: Mapping[str, Any]) -> dict[str, Any]:
        if point == "before-patch":
            die()
        answer = patch(self, body)
        if point == "after-patch":
            die()
        if point == LOST_ANSWER and not done:
            done.append(True)
            raise Away("the answer was lost")
        done.append(True)
        return answer

    def dying_status(self: Kube, status: Mapping[str, Any]) -> None:
        apply_status(self, status)
        if point == "after-status" and done:
            die()

    def dying_event(self: Kube, identity: str, kind: str, reason: str, message: str) -> None:
        event(self, identity, kind, reason, message)
        if point == "after-event" and done:
            die()

    Kube.patch = dying_patch  # type: ignore[method-assign]
    Kube.apply_status = dying_status  # type: ignore[method-assign]
    Kube.event = dying_event  # type: ignore[method-assign]


if __name__ == "__main__":
    assert sys.argv[1] in (*POINTS, LOST_ANSWER)
    arm(sys.argv[1])
    sys.exit(main([]))
