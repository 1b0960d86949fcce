"""The rules of the house that no type checker knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("root", ["operator", "sparkjob"])
def test_a_source_root_is_never_a_package(root: str) -> None:
    # operator/__init__.py would shadow the standard library's `operator` in every Python process.
    directory = ROOT / root
    assert directory.is_dir()
    assert [path.name for path in directory.glob("*.py")] == []


def test_the_standard_librarys_operator_is_the_one_imported_from_the_root() -> None:
    code = "import operator, sys; sys.exit(0 if operator.add(1, 2) == 3 else 1)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_every_python_lock_is_pinned_by_hash() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert [lock.stem for lock in locks] == ["control", "dev", "spark"]
    for lock in locks:
        pinned = [line for line in lock.read_text().splitlines() if line and line[0].isalnum()]
        assert pinned, lock
        assert all("==" in line and line.endswith("\\") for line in pinned), lock


def test_ci_runs_make_test_and_nothing_else() -> None:
    commands = [
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert commands[-1] == "exec make test"
    assert all(line.startswith(("set ", "cd ")) for line in commands[:-1])
