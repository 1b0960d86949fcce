"""The mirror against a plain dictionary: whatever arrives, a viewer who takes its frames has the same
rows."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from topicbinding.client.replica import Replica
from topicbinding.gateway import mirror as module
from topicbinding.gateway.mirror import Frame, Mirror
from topicbinding.tables import frames

SCHEMA = pa.schema([("_row", pa.int64()), ("v", pa.utf8())])


def table(rows: dict[int, str]) -> pa.Table:
    return pa.table({"_row": list(rows), "v": list(rows.values())}, schema=SCHEMA)


def header(seq: int, rows: int, epoch: str = "e") -> dict[str, Any]:
    return {"type": "x", "epoch": epoch, "seq": seq, "rows": rows, "ts": 5, "newestEventTime": 4}


def taken(replica: Replica, sent: list[Frame]) -> dict[int, str]:
    """What a client has after these frames, decoded from the bytes it would receive."""
    for frame in sent:
        replica.apply(*frames.decode(frame.binary))
    rows = replica.table.to_pylist()
    return {row["_row"]: row["v"] for row in rows}


def make(**options: int) -> Mirror:
    return Mirror(7, **{"ring_frames": 8, "ring_bytes": 1 << 20, **options})


def test_nothing_is_shown_before_a_whole_snapshot() -> None:
    assert not make().complete


def test_a_snapshot_in_parts_comes_out_whole() -> None:
    mirror = make()
    mirror.reset(header(3, 3), [table({1: "a", 2: "b"}), table({3: "c"})])
    sent = mirror.snapshot("snapshot")
    assert [(frame.header["part"], frame.header["parts"]) for frame in sent] == [(1, 2), (2, 2)]
    assert taken(Replica(), sent) == {1: "a", 2: "b", 3: "c"}
    assert sent[0].header["newestEventTime"] == 4


def test_an_empty_table_is_a_snapshot_too() -> None:
    mirror = make()
    mirror.reset(header(0, 0), [table({})])
    assert mirror.complete
    assert taken(Replica(), mirror.snapshot("snapshot")) == {}


def test_waiting_rows_are_shown_with_the_flush_and_not_before() -> None:
    mirror = make()
    mirror.reset(header(1, 1), [table({1: "a"})])
    mirror.add(header(2, 2), table({2: "b"}))
    assert mirror.shown == 1
    assert mirror.snapshot("snapshot")[-1].header["seq"] == 1
    mirror.flush()
    assert mirror.shown == 2
    assert taken(Replica(), mirror.snapshot("snapshot")) == {1: "a", 2: "b"}


def test_rows_of_one_gathering_travel_in_one_frame() -> None:
    mirror = make()
    mirror.reset(header(1, 0), [table({})])
    for seq in range(2, 6):
        mirror.add(header(seq, seq), table({seq: str(seq)}))
    mirror.flush()
    missing = mirror.since(1)
    assert missing is not None
    assert [frame.header["seq"] for frame in missing] == [5]
    assert missing[0].binary is missing[0].binary, "a frame is encoded once for all"


def test_since_gives_what_is_missing_and_none_when_it_is_gone() -> None:
    mirror = make(ring_frames=3)
    mirror.reset(header(0, 0), [table({})])
    for seq in range(1, 7):
        mirror.add(header(seq, seq), table({seq: "x"}))
        mirror.flush()
    assert mirror.since(6) == []
    assert [delta.seq for delta in mirror.since(4) or []] == [5, 6]
    assert [delta.seq for delta in mirror.since(3) or []] == [4, 5, 6]
    assert mirror.since(2) is None
    assert mirror.since(99) is None, "a place in the future belongs to another life of the driver"


def test_the_ring_is_bounded_in_bytes() -> None:
    mirror = make(ring_frames=1000, ring_bytes=2000)
    mirror.reset(header(0, 0), [table({})])
    for seq in range(1, 30):
        mirror.add(header(seq, seq), table({seq: "y" * 500}))
        mirror.flush()
    assert mirror.since(20) is None
    assert mirror.since(28)


def test_a_swap_names_both_generations_and_carries_all_rows() -> None:
    mirror = make()
    mirror.reset(header(4, 1), [table({1: "a"})])
    mirror.add(header(5, 1), table({1: "b"}))
    mirror.flush()
    sent = mirror.snapshot("swap", 6)
    assert {(frame.header["from"], frame.header["to"]) for frame in sent} == {(6, 7)}
    assert taken(Replica(), sent) == {1: "b"}
    assert mirror.snapshot("swap", 6) is sent, "fifty viewers take the same frames"


def test_a_new_snapshot_forgets_what_was_before() -> None:
    mirror = make()
    mirror.reset(header(4, 1), [table({1: "a"})])
    mirror.add(header(5, 2), table({2: "b"}))
    mirror.flush()
    mirror.reset(header(1, 1, epoch="f"), [table({9: "z"})])
    assert mirror.version == 2
    assert mirror.since(5) is None
    assert taken(Replica(), mirror.snapshot("snapshot")) == {9: "z"}


async def test_compaction_changes_nothing_that_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAIL_FRAMES", 3)
    monkeypatch.setattr(module, "PART_ROWS", 4)
    mirror = make()
    mirror.reset(header(0, 5), [table(dict.fromkeys(range(5), "a"))])
    for seq in range(1, 5):
        mirror.add(header(seq, 5 + seq), table({seq: "b", 100 + seq: "n"}))
        mirror.flush()
    assert mirror.wants_compaction
    before = taken(Replica(), mirror.snapshot("snapshot"))
    await mirror.compact()
    assert not mirror.wants_compaction
    sent = mirror.snapshot("snapshot")
    assert all((frame.rows or table({})).num_rows <= 4 for frame in sent)
    assert taken(Replica(), sent) == before
    assert (mirror.shown, mirror.version) == (4, 1)
    assert [delta.seq for delta in mirror.since(2) or []] == [3, 4]


@pytest.mark.parametrize("seed", range(12))
async def test_any_story_ends_with_the_right_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAIL_FRAMES", 4)
    dice = random.Random(seed)
    mirror = make(ring_frames=5)
    truth: dict[int, str] = {}
    seq = 0
    mirror.reset(header(0, 0), [table({})])
    clients = [(Replica(), 0, -1) for _ in range(3)]
    for step in range(120):
        action = dice.random()
        if action < 0.03:
            truth = dict.fromkeys(dice.sample(range(50), dice.randint(0, 20)), f"r{step}")
            seq, ordered = 0, dict(sorted(truth.items()))
            mirror.reset(header(0, len(truth), epoch=f"e{step}"), [table(ordered)])
        elif action < 0.6:
            change = dict.fromkeys(sorted(dice.sample(range(80), dice.randint(1, 5))), f"{step}")
            truth |= change
            seq += 1
            mirror.add(header(seq, len(truth)), table(change))
        else:
            mirror.flush()
            if mirror.wants_compaction:
                await mirror.compact()
        index = dice.randrange(3)
        replica, version, place = clients[index]
        missing = mirror.since(place) if version == mirror.version else None
        if missing is None:
            missing_frames: list[Frame] = mirror.snapshot("snapshot")
        else:
            missing_frames = list(missing)
        for frame in missing_frames:
            replica.apply(*frames.decode(frame.binary))
        clients[index] = (replica, mirror.version, mirror.shown)
    mirror.flush()
    for replica, version, place in clients:
        missing = mirror.since(place) if version == mirror.version else None
        sent: list[Frame] = mirror.snapshot("snapshot") if missing is None else [*missing]
        assert taken(replica, sent) == truth
    merged = await mirror.table()
    assert {row["_row"]: row["v"] for row in merged.to_pylist()} == truth
    assert merged["_row"].to_pylist() == sorted(truth)


def test_json_of_a_frame_holds_header_and_rows() -> None:
    mirror = make()
    mirror.reset(header(1, 1), [table({1: "<b>"})])
    assert '"data":[{"_row":1,"v":"<b>"}]' in mirror.snapshot("snapshot")[0].json
