"""The directory folds watch events; what it is told twice, late or damaged must not confuse it."""

from __future__ import annotations

from typing import Any

from topicbinding.gateway.directory import Directory, Key, Kind, describe_build, failure_of

KEY = Key("shop", "orders")


def binding(uid: str = "b1", name: str = "orders", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "name": name, "uid": uid},
        "spec": {
            "usersTopic": "users-v1",
            "accountsTopic": "accounts-v1",
            "kafka": {"bootstrapServers": "kafka:9092"},
        },
        "status": status,
    }


def generation(number: int, uid: str = "", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "name": f"orders-g{number}", "uid": uid or f"g{number}"},
        "spec": {"binding": "orders", "bindingUid": "b1", "number": number, "spark": {}},
        "status": status,
    }


def event(uid: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "involvedObject": {"kind": "TopicBinding", "name": "orders"},
        "reason": "Swapped",
        "message": text,
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:01Z",
        **more,
    }


def test_bindings_come_change_and_go() -> None:
    told: list[Key] = []
    directory = Directory()
    directory.listen(told.append)
    directory.put(Kind.BINDING, binding())
    directory.put(Kind.BINDING, binding(activeGeneration=2))
    entry = directory.get(KEY)
    assert entry is not None
    assert entry.active == 2
    directory.remove(Kind.BINDING, binding())
    assert directory.get(KEY) is None
    assert directory.keys() == []
    assert told == [KEY] * 3


def test_generations_may_be_seen_before_their_binding() -> None:
    directory = Directory()
    directory.put(Kind.GENERATION, generation(1, phase="Reading"))
    assert directory.get(KEY) is None
    directory.put(Kind.BINDING, binding())
    entry = directory.get(KEY)
    assert entry is not None
    assert list(entry.generations) == [1]


def test_a_list_removes_what_it_does_not_hold() -> None:
    directory = Directory()
    directory.put(Kind.BINDING, binding())
    directory.replace(Kind.GENERATION, [generation(1), generation(2)])
    directory.replace(Kind.GENERATION, [generation(2)])
    entry = directory.get(KEY)
    assert entry is not None
    assert list(entry.generations) == [2]
    directory.replace(Kind.BINDING, [])
    assert directory.keys() == []


def test_a_late_deletion_of_a_recreated_object_removes_nothing() -> None:
    directory = Directory()
    directory.put(Kind.BINDING, binding("old"))
    directory.put(Kind.BINDING, binding("new"))
    directory.put(Kind.GENERATION, generation(1, "old-g"))
    directory.put(Kind.GENERATION, generation(1, "new-g"))
    directory.remove(Kind.BINDING, binding("old"))
    directory.remove(Kind.GENERATION, generation(1, "old-g"))
    entry = directory.get(KEY)
    assert entry is not None
    assert entry.binding is not None
    assert entry.binding.uid == "new"
    assert list(entry.generations) == [1]


def test_an_object_that_cannot_be_read_is_left_out_and_the_rest_goes_on() -> None:
    directory = Directory()
    directory.put(Kind.BINDING, {"metadata": {"namespace": "shop", "name": "odd", "uid": "x"}, "spec": {}})
    directory.put(Kind.GENERATION, {"metadata": {}})
    directory.put(Kind.EVENT, {"metadata": {"namespace": "shop", "uid": "y"}})
    directory.put(Kind.BINDING, binding())
    assert directory.keys() == [KEY]


def test_log_lines_have_levels_and_repeat_in_place() -> None:
    directory = Directory()
    directory.put(Kind.BINDING, binding())
    directory.put(Kind.EVENT, event("1", "swapped 1 -> 2"))
    directory.put(Kind.EVENT, event("2", "no such topic", type="Warning", reason="BuildFailed"))
    directory.put(Kind.EVENT, event("3", "slow", type="Warning", reason="Waiting", count=3))
    directory.put(
        Kind.EVENT, event("4", "caught up", involvedObject={"kind": "Generation", "name": "orders-g12"})
    )
    directory.put(Kind.EVENT, event("5", "not ours", involvedObject={"kind": "Pod", "name": "orders-g12"}))
    directory.put(Kind.EVENT, event("2", "no such topic", type="Warning", reason="BuildFailed", count=2))
    lines = {line.uid: (line.level, line.message) for line in directory.lines(KEY)}
    assert lines == {
        "1": ("INFO", "Swapped: swapped 1 -> 2"),
        "2": ("ERROR", "BuildFailed: no such topic (x2)"),
        "3": ("WARN", "Waiting: slow (x3)"),
        "4": ("INFO", "Swapped: caught up"),
    }


def test_log_lines_are_bounded_and_survive_the_event() -> None:
    directory = Directory(log_rows=3)
    directory.put(Kind.BINDING, binding())
    for number in range(10):
        body = event(str(number), f"line {number}", lastTimestamp=f"2026-01-01T00:00:{number:02d}Z")
        directory.put(Kind.EVENT, body)
    directory.remove(Kind.EVENT, event("9", ""))
    assert [line.uid for line in directory.lines(KEY)] == ["7", "8", "9"]


def test_words_for_what_is_built_and_for_what_failed() -> None:
    directory = Directory()
    directory.put(Kind.BINDING, binding())
    entry = directory.get(KEY)
    assert entry is not None
    assert describe_build(entry) == "nothing is being served yet"
    directory.put(Kind.GENERATION, generation(1, phase="Reading", progress={"percent": 40}))
    assert describe_build(entry) == "generation 1 is reading its topics (40 %)"
    directory.put(Kind.GENERATION, generation(2, phase="Failed", message="no such topic"))
    assert failure_of(entry, 2) == "no such topic"
    assert failure_of(entry, 1) == ""
    stalled = {
        "type": "Stalled",
        "status": "True",
        "reason": "TopicNotFound",
        "message": "topic x is missing",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    directory.put(Kind.BINDING, binding(conditions=[stalled]))
    assert failure_of(entry, None) == "topic x is missing"
