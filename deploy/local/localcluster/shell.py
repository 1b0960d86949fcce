"""Running other programs: one place for paths, time-outs, logs and readable failures."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from localcluster.report import Trouble

Command = Sequence[str | Path]


def run(
    command: Command,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
    check: bool = True,
    do: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run to the end and give back what it printed. A failure shows the last lines, and `do`: what to do."""
    words = [str(word) for word in command]
    _require(words, env, do)
    try:
        result = subprocess.run(
            words,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        if not check:
            return subprocess.CompletedProcess(words, 124, "", f"no answer within {timeout} s")
        raise Trouble(f"`{_short(words)}` did not end within {timeout} s", do) from None
    if check and result.returncode != 0:
        tail = "\n".join((result.stderr or result.stdout).strip().splitlines()[-15:])
        raise Trouble(f"`{_short(words)}` failed with exit code {result.returncode}:\n{tail}", do)
    return result


def run_logged(
    command: Command,
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    do: str = "",
) -> None:
    """Run something long, its output going to a log file; a failure shows its end and names the file."""
    words = [str(word) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    _require(words, env, do)
    with log.open("ab") as out:
        result = subprocess.run(
            words,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    if result.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise Trouble(
            f"`{_short(words)}` failed with exit code {result.returncode}; the end of {log}:\n{tail}", do
        )


def pipe(source: Command, sink: Command) -> None:
    """`source | sink`, both of which must succeed."""
    _require(source)
    _require(sink)
    first = subprocess.Popen([str(word) for word in source], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        second = subprocess.run(
            [str(word) for word in sink], stdin=first.stdout, capture_output=True, text=True
        )
    finally:
        if first.stdout:
            first.stdout.close()
        first_code = first.wait()
    if first_code != 0 or second.returncode != 0:
        codes = f"exit codes {first_code} and {second.returncode}"
        raise Trouble(f"`{_short(source)} | {_short(sink)}` failed, {codes}:\n{second.stderr.strip()}")


def wait_until(
    what: str, condition: Callable[[], bool], *, seconds: float, every: float = 0.5, do: str = ""
) -> None:
    """Wait for a condition with a deadline; missing it is an error that names what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Trouble(f"{what}: not within {seconds:.0f} s", do)
        time.sleep(every)


def _require(command: Command, env: Mapping[str, str] | None = None, do: str = "") -> None:
    if shutil.which(str(command[0]), path=(env or {}).get("PATH")) is None:
        raise Trouble(f"{command[0]} is not installed", do or f"install {command[0]}, then repeat")


def _short(words: Command) -> str:
    text = " ".join(str(word) for word in words)
    return text if len(text) <= 160 else text[:157] + "..."
