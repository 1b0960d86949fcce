"""A million messages nobody would send, and what holds for each: no crash, no stall, no bad spec."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time

from tests.support.cluster import ROOT
from tests.support.control_fuzz import BEFORE, HERE, check_fold, check_message, heard, messages
from topicbinding.bridge.fold import Base, fold

MESSAGES = 1_000_000
BATCH = 500


def test_a_million_random_and_mutated_messages() -> None:
    source = messages(seed=20_261_118)
    base, slowest, taken = Base(HERE, BEFORE), 0.0, 0
    started = time.monotonic()
    for _ in range(MESSAGES // BATCH):
        batch = list(itertools.islice(source, BATCH))
        begun = time.monotonic()
        folded = fold(base, heard(batch))
        slowest = max(slowest, time.monotonic() - begun)
        check_fold(folded, BATCH)
        for value in batch[::50]:
            check_message(value)
        taken += folded.changed
        # On from where it led, as a binding would.
        base = Base(folded.choice, base.choice)
    took = time.monotonic() - started
    print(f"\n{MESSAGES} messages in {took:.0f} s; slowest batch of {BATCH}: {slowest * 1000:.0f} ms")
    assert taken > 100, "mutations so wild that none is ever taken would prove little"
    assert slowest < 5


def test_values_of_ten_megabytes_do_not_block() -> None:
    for filler in (b"x", b"[", b'{"a":', b"\\u0000", b"\xff", b" ", b'"', b"9"):
        for head in (b"", b'{"usersTopic":"', b'{"id":', b'"'):
            value = head + filler * (10_000_000 // len(filler))
            begun = time.monotonic()
            check_message(value)
            assert time.monotonic() - begun < 1


def test_atheris_finds_nothing() -> None:
    """Coverage-guided: it keeps inputs that reach new code. A crash leaves its input in the output."""
    command = [
        sys.executable, "-m", "tests.support.control_atheris", "-runs=100000", "-max_len=400", "-seed=7",
        "-max_total_time=10", "-print_final_stats=1", "-artifact_prefix=/dev/null",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}"}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "Done" in ended.stderr
