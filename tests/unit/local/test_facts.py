"""Reading what Linux and the tools print."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from localcluster import cluster, facts
from localcluster.settings import Settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('NAME="Debian GNU/Linux"\nID=debian\n', True),
        ("ID=ubuntu\nID_LIKE=debian\n", True),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', True),
        ('ID="fedora"\n', False),
        ("", False),
    ],
)
def test_debian_and_its_children_are_recognised(text: str, expected: bool) -> None:
    assert facts.is_debian_like(text) is expected


@pytest.mark.parametrize(
    ("status", "lacks"),
    [
        ("CapBnd:\t000001ffffffffff\n", False),
        ("CapEff:\t0000000000000000\nCapBnd:\t000001fffeffffff\n", True),
        ("nothing of the kind", False),
    ],
)
def test_a_missing_capability_is_seen_in_the_bounding_set(status: str, lacks: bool) -> None:
    assert facts.lacks_capability(status, facts.CAP_SYS_RESOURCE) is lacks


@pytest.mark.parametrize(
    ("found", "good"),
    [
        ("Client Version: v1.34.2", True),
        ("v1.33.9", True),
        ("v1.35.0", True),
        ("v1.32.4-x", False),
        ("", False),
    ],
)
def test_a_tool_on_the_path_must_be_new_enough(found: str, good: bool) -> None:
    assert facts.new_enough(found, (1, 33)) is good


@pytest.mark.parametrize(
    ("version", "buildx", "good"),
    [("20.10.24+dfsg1", False, True), ("28.2.2", False, False), ("28.2.2", True, True), ("", True, False)],
)
def test_a_docker_command_that_can_build_is_told_apart(version: str, buildx: bool, good: bool) -> None:
    assert facts.can_buildkit(version, buildx) is good


def test_memory_is_read() -> None:
    assert facts.memory_gb("MemTotal:       24684100 kB\nMemFree: 1 kB\n") == pytest.approx(24.68, abs=0.01)


@pytest.mark.parametrize("content", ["", "not a number", "999999999", str(os.getpid())])
def test_a_stale_pid_file_is_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "dockerd.pid").write_text(content)

    assert facts.our_dockerd(Settings(cache=tmp_path)) is None


def test_a_port_somebody_listens_on_is_noticed(tmp_path: Path) -> None:
    wanted = facts.wanted_ports(Settings(cache=tmp_path), frozenset())
    again = facts.wanted_ports(Settings(cache=tmp_path), frozenset({"topicbinding-registry"}))

    assert set(wanted) == {9092, 9192, 9292, 9093, 9193, 9293, 8080, 5001}
    assert set(wanted) - set(again) == {5001}, "our own registry may hold its port"


def pods(*states: tuple[str, bool, str | None]) -> str:
    items = [
        {
            "status": {
                "phase": phase,
                "containerStatuses": [
                    {"ready": ready, "state": {"running": {"startedAt": started}} if started else {}}
                ],
            }
        }
        for phase, ready, started in states
    ]
    return json.dumps({"items": items})


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        (pods(("Running", True, "2026-01-01T00:00:09Z")), True),
        (pods(("Running", True, "2026-01-01T00:00:09Z"), ("Succeeded", False, None)), True),
        # What the API server remembers from before the restart.
        (pods(("Running", True, "2025-12-31T23:00:00Z")), False),
        (pods(("Running", False, "2026-01-01T00:00:09Z")), False),
        (pods(("Running", True, None)), False),
        ('{"items": [{"status": {"phase": "Pending"}}]}', False),
    ],
)
def test_after_a_restart_only_what_started_since_counts(listing: str, expected: bool) -> None:
    since = datetime.fromisoformat("2026-01-01T00:00:00+00:00")

    assert cluster.pods_started_since(listing, since) is expected


def test_nodes_are_ready_when_each_says_so() -> None:
    def listing(*states: str) -> str:
        items = [f'{{"status": {{"conditions": [{{"type": "Ready", "status": "{s}"}}]}}}}' for s in states]
        return f'{{"items": [{", ".join(items)}]}}'

    assert cluster.all_nodes_ready(listing("True", "True"))
    assert not cluster.all_nodes_ready(listing("True", "Unknown"))
    assert not cluster.all_nodes_ready(listing())
