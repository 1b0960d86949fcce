"""What the user sees: a plan, one line per step with its time, and errors that say what to do."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Trouble(Exception):  # noqa: N818 (it is told to people, by that name)
    """Something the user must know about: what went wrong, and what to do about it."""

    def __init__(self, what: str, do: str = "") -> None:
        super().__init__(what if not do else f"{what}\n  -> {do}")
        self.what = what
        self.do = do


def say(line: str) -> None:
    """Print one line at once, also when nobody's terminal is there."""
    print(line, flush=True)


def complain(trouble: Trouble) -> None:
    """Print what went wrong where errors belong."""
    print(f"ERROR: {trouble}", file=sys.stderr, flush=True)


_last: list[str] = [""]


def _tell(line: str) -> None:
    _last[0] = line
    say(line)


@contextmanager
def step(name: str, doing: str) -> Iterator[None]:
    """Announce a step, and its time when it is done. A failed step says how long it tried.

    Steps may run side by side: an end that does not follow its own beginning says whose it is.
    """
    beginning = f"[{name}] {doing} ..."
    _tell(beginning)
    start = time.monotonic()

    def end(word: str) -> None:
        whose = "" if _last[0] == beginning else f"{doing}: "
        _tell(f"[{name}] {whose}{word} {time.monotonic() - start:.1f} s")

    try:
        yield
    except BaseException:
        end("FAILED after")
        raise
    end("done in")
