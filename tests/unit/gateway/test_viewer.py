"""What a viewer is sent next: rows once, one swap for each change of generation, a snapshot when it fell
behind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from topicbinding.gateway.channel import Channel
from topicbinding.gateway.directory import Key
from topicbinding.gateway.mirror import Mirror
from topicbinding.gateway.settings import Settings
from topicbinding.gateway.states import Facts
from topicbinding.gateway.viewer import Place, Viewer

SCHEMA = pa.schema([("_row", pa.int64())])


class Stage(Channel):
    """A channel whose facts and mirror the test sets."""

    def __init__(self) -> None:
        super().__init__(Key("shop", "orders"), "users_ui", Settings())
        self.known = Facts(exists=True, shown=None, wanted=None, silent_seconds=None)

    def facts(self) -> Facts:
        return self.known

    def show(self, generation: int, ring: int = 4) -> Mirror:
        mirror = Mirror(generation, ring_frames=ring, ring_bytes=1 << 20)
        mirror.reset(header(1), [rows(1)])
        self.current = mirror
        self.known = Facts(exists=True, shown=generation, wanted=generation, silent_seconds=0.0)
        self.look()
        return mirror


def header(seq: int) -> dict[str, Any]:
    return {"epoch": "e", "seq": seq, "rows": seq}


def rows(*ids: int) -> pa.Table:
    return pa.table({"_row": list(ids)}, schema=SCHEMA)


def kinds(viewer: Viewer, channel: Channel) -> list[str]:
    return [frame.header["type"] for frame in viewer.next(channel)]


def put(mirror: Mirror, seq: int) -> None:
    mirror.add(header(seq), rows(seq))
    mirror.flush()


def test_a_viewer_begins_with_rows_and_state_and_then_gets_only_what_is_new() -> None:
    channel, viewer = Stage(), Viewer()
    mirror = channel.show(1)
    assert kinds(viewer, channel) == ["snapshot", "state"]
    assert kinds(viewer, channel) == []
    put(mirror, 2)
    assert kinds(viewer, channel) == ["delta"]
    channel.tick()
    assert kinds(viewer, channel) == ["heartbeat"]
    assert kinds(viewer, channel) == []


def test_before_there_are_rows_the_state_says_why() -> None:
    channel, viewer = Stage(), Viewer()
    channel.look()
    frames = viewer.next(channel)
    assert [frame.header["type"] for frame in frames] == ["state"]
    assert frames[0].header["state"] == "swapping"
    assert frames[0].header["reason"]


def test_one_swap_for_each_change_of_generation() -> None:
    channel, viewer = Stage(), Viewer()
    channel.show(1)
    viewer.next(channel)
    channel.show(2)
    frames = viewer.next(channel)
    assert frames[0].header["type"] == "swap"
    assert (frames[0].header["from"], frames[0].header["to"]) == (1, 2)
    assert "swap" not in kinds(viewer, channel)


def test_a_restarted_driver_is_a_snapshot_and_no_swap() -> None:
    channel, viewer = Stage(), Viewer()
    mirror = channel.show(1)
    viewer.next(channel)
    mirror.reset({"epoch": "other", "seq": 0, "rows": 1}, [rows(1)])
    assert kinds(viewer, channel) == ["snapshot"]


def test_a_slow_viewer_gets_a_snapshot() -> None:
    channel, viewer = Stage(), Viewer()
    mirror = channel.show(1, ring=3)
    viewer.next(channel)
    for seq in range(2, 9):
        put(mirror, seq)
    assert kinds(viewer, channel) == ["snapshot", "snapshot"], "base and tail, in two parts"
    assert viewer.snapshots == 1
    put(mirror, 9)
    assert kinds(viewer, channel) == ["delta"]


def test_a_returning_viewer_gets_what_it_missed() -> None:
    channel = Stage()
    mirror = channel.show(1)
    for seq in (2, 3, 4):
        put(mirror, seq)
    assert kinds(Viewer(Place(1, "e", 3)), channel) == ["delta", "state"]
    assert kinds(Viewer(Place(1, "e", 4)), channel) == ["state"]
    assert kinds(Viewer(Place(1, "other", 4)), channel)[0] == "snapshot"


def test_a_viewer_that_returns_after_a_swap_gets_that_swap() -> None:
    channel = Stage()
    channel.show(2)
    frames = Viewer(Place(1, "e", 3)).next(channel)
    assert (frames[0].header["type"], frames[0].header["from"]) == ("swap", 1)


@pytest.mark.parametrize(
    "text", ["", None, "x", "1:2", "1:e:x", "a:e:1", "1::2", "-1:e:2", "1:e:-2", "1:" + "e" * 500 + ":1"]
)
def test_a_place_that_is_not_ours_is_ignored(text: str | None) -> None:
    assert Place.parse(text) is None


def test_a_place_survives_the_journey() -> None:
    channel = Stage()
    channel.show(3)
    frame = Viewer().next(channel)[0]
    identity = Place.of(frame)
    assert identity == "3:e:1"
    assert Place.parse(identity) == Place(3, "e", 1)
    assert Place.parse("3:odd:epoch:7") == Place(3, "odd:epoch", 7)
