"""The small parts: settings, the session's settings, the reporter, the way in for real-time rows, pinned
offsets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from tests.support.waiting import eventually
from topicbinding.api import Executors, Generation, Mode, Phase, SparkSpec, Tables
from topicbinding_job import session, topics, wire
from topicbinding_job.ingest import FrameBroken, Ingest, decode
from topicbinding_job.kube import ApiAway, GenerationGone
from topicbinding_job.reporter import Reporter
from topicbinding_job.settings import Settings, SettingsError
from topicbinding_job.state import DriverState

NEEDED = {"TB_NAMESPACE": "n", "TB_GENERATION": "b-g1"}


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({}, "TB_NAMESPACE"),
        (NEEDED | {"TB_AUTH": "none"}, "loopback"),
        (NEEDED | {"TB_AUTH": "off"}, "TB_AUTH"),
        (NEEDED | {"TB_MEMORY": "1Gi"}, "TB_MEMORY"),
        (NEEDED | {"TB_CORES": "0"}, "TB_CORES"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(env: Mapping[str, str], word: str) -> None:
    with pytest.raises(SettingsError, match=word):
        Settings.from_environment(env)


@pytest.mark.parametrize(
    "name", ["spark.master", "spark.jars", "spark.kubernetes.namespace", "spark.driver.host", "hadoop.x"]
)
def test_spark_settings_that_would_break_the_job_are_refused(name: str) -> None:
    with pytest.raises(session.ConfRefused, match=name.split(".")[0]):
        session.checked_conf({name: "x"})


@pytest.mark.parametrize("memory", ["1", "512Mi", "1Gi", "64Gi"])
def test_the_heap_is_never_less_than_spark_starts_with(memory: str) -> None:
    assert session.heap_bytes(session.memory_bytes(memory)) >= 450 * 2**20


def test_memory_is_shared_between_heap_and_tables() -> None:
    memory = session.memory_bytes("1536Mi")
    assert memory == 1536 * 2**20
    assert session.memory_bytes("2G") == 2 * 10**9
    assert session.heap_bytes(memory) + session.table_bytes(memory) < memory - 400 * 2**20
    with pytest.raises(ValueError, match="amount"):
        session.memory_bytes("lots")


def test_real_time_keeps_one_part_of_the_state() -> None:
    executors = Executors(instances=3, cores=2)
    assert session.shuffle_partitions(SparkSpec(mode=Mode.AUTO, executors=executors)) == 1
    assert session.shuffle_partitions(SparkSpec(mode=Mode.MICROBATCH, executors=executors)) == 6


class Board:
    """A place for reports that can be away."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.trouble: Exception | None = None

    def read(self) -> Generation:
        raise NotImplementedError

    def wait_for_source(self, stop: threading.Event) -> Generation | None:
        raise NotImplementedError

    def report(self, status: Mapping[str, Any]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.said.append(dict(status))


def test_reports_survive_an_api_server_that_is_away_and_say_nothing_twice() -> None:
    board, state = Board(), DriverState()
    reporter = Reporter(board, state, 0.01)
    board.trouble = ApiAway("nobody there")
    reporter.start()
    state.move(Phase.READING, "Reading")
    board.trouble = None
    state.move(Phase.CAUGHT_UP, "CaughtUp")
    eventually(
        lambda: any(each.get("phase") == "CaughtUp" for each in board.said), 10, "the phase", every=0.01
    )
    count = len(board.said)
    state.lag = 5
    eventually(lambda: any(each.get("lag") == 5 for each in board.said), 10, "the lag", every=0.01)
    # Only what changed is said again.
    assert "phase" not in board.said[-1]
    assert len(board.said) <= count + 1
    reporter.close()


def test_a_generation_that_is_gone_is_noticed() -> None:
    board = Board()
    board.trouble = GenerationGone("gone")
    reporter = Reporter(board, DriverState(), 0.01)
    reporter.start()
    assert reporter.gone.wait(10)


def test_real_time_rows_without_the_token_are_refused() -> None:
    taken: list[pa.Table] = []
    ingest = Ingest("127.0.0.1", 0, wire.schema(Tables()), taken.append)
    try:
        with socket.create_connection((ingest.host, ingest.port)) as stranger:
            stranger.sendall(b"x" * len(ingest.token))
            assert stranger.recv(1) == b""
        with socket.create_connection((ingest.host, ingest.port)) as ours:
            ours.sendall(ingest.token.encode() + b"\0\0\0\0")
            assert ours.recv(1) == b"\x01"
        assert taken == []
    finally:
        ingest.close()


@pytest.mark.parametrize(
    "frame", [b"", b"\1", b"\1" + bytes(7), b"\1" + bytes(7) + b"\xff" * 8, bytes(8) + b"\x7f" * 8]
)
def test_broken_frames_are_refused(frame: bytes) -> None:
    with pytest.raises(FrameBroken):
        decode(memoryview(frame), wire.schema(Tables()))


def test_pinned_offsets_are_kept_as_far_as_they_are_there() -> None:
    notes: list[str] = []
    kept = topics._kept("t", {0: 5, 1: 5, 2: 50}, {0: 0, 1: 8, 2: 0, 3: 0}, {0: 9, 1: 9, 2: 9, 3: 9}, notes)
    assert kept == {0: 5, 1: 8, 2: 0, 3: 0}
    assert len(notes) == 2
    assert "deleted" in notes[0]
    assert "made anew" in notes[1]
