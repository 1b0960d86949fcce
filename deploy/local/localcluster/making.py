"""Making things that last: written aside, then renamed, so that no half thing ever has a good name."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def aside(target: Path) -> Iterator[Path]:
    """A path next to `target` to write a file or directory to; becomes `target` when the block succeeds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".partial-{os.getpid()}-{target.name}")
    remove(partial)
    try:
        yield partial
        remove(target)
        partial.rename(target)
    finally:
        remove(partial)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole tree; nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(directory: Path) -> None:
    """Remove what interrupted runs left: partial things of processes that are gone."""
    for partial in directory.glob(".partial-*"):
        pid = partial.name.split("-")[1]
        if not (pid.isdigit() and Path(f"/proc/{pid}").exists()):
            subprocess.run(["rm", "-rf", "--one-file-system", str(partial)], check=False)


def link(target: Path, name: Path) -> None:
    """Point `name` at `target`, in one step also when it pointed elsewhere."""
    name.parent.mkdir(parents=True, exist_ok=True)
    fresh = name.with_name(f".partial-{os.getpid()}-{name.name}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.rename(name)
