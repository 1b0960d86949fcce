"""The smaller parts: settings, the cache's distrust of late news, the queue, what is read from a pod."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tests.unit.controller.apiserver import ApiServer, Client
from topicbinding.controller.applier import difference
from topicbinding.controller.cache import Cache, Key
from topicbinding.controller.observed import DriverFailures, Failure, read_pod
from topicbinding.controller.policy import Policy
from topicbinding.controller.ports import BINDING, GENERATION, POD, UnavailableError
from topicbinding.controller.reporter import Reporter
from topicbinding.controller.settings import Settings
from topicbinding.controller.wakequeue import WakeQueue

KEY = ("shop", "orders")


def manifest(name: str, version: int, **more: Any) -> dict[str, Any]:
    labels = {
        "topicbinding.dev/binding": "orders",
        "topicbinding.dev/generation": "1",
        "topicbinding.dev/component": "driver",
    }
    meta = {"namespace": "shop", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta | {"labels": labels}} | more


BOUND = {"usersTopic": "u", "accountsTopic": "a", "kafka": {"bootstrapServers": "k:1"}}


def cache() -> Cache:
    made = Cache(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    made.put(BINDING, manifest("orders", 1, spec=BOUND))
    return made


def test_settings_come_from_the_environment_and_say_what_is_wrong() -> None:
    said = Settings.from_environment({"TB_WORKERS": "3", "TB_WATCH_NAMESPACES": "a, b", "TB_GATEWAY_X": "y"})
    assert (said.workers, said.watch_namespaces) == (3, ("a", "b"))
    with pytest.raises(ValidationError, match="workers"):
        Settings.from_environment({"TB_WORKERS": "none"})


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (5, 16), (7, 60), (1000, 60)])
def test_waits_double_up_to_the_cap(failures: int, seconds: int) -> None:
    assert Policy().retry_after(failures).total_seconds() == seconds


def test_older_news_changes_nothing() -> None:
    seen = cache()
    pod = manifest("orders-g1", 20, status={"phase": "Running"})
    assert seen.put(POD, pod) == KEY
    assert seen.put(POD, manifest("orders-g1", 10, status={"phase": "Pending"})) is None
    observed = seen.observe(KEY)
    assert observed is not None
    assert [each.phase for each in observed.pods] == ["Running"]


def test_what_was_deleted_is_not_brought_back_by_a_late_answer() -> None:
    seen = cache()
    seen.put(POD, manifest("orders-g1", 20))
    seen.drop(POD, manifest("orders-g1", 25))
    assert seen.put(POD, manifest("orders-g1", 22)) is None
    observed = seen.observe(KEY)
    assert observed is not None
    assert observed.pods == ()


def test_the_end_of_a_predecessor_does_not_hide_its_successor() -> None:
    seen = cache()
    seen.put(POD, manifest("orders-g1", 30))
    assert seen.drop(POD, manifest("orders-g1", 25)) is None
    observed = seen.observe(KEY)
    assert observed is not None
    assert len(observed.pods) == 1


def test_a_listing_finds_what_a_watch_has_missed() -> None:
    seen = cache()
    seen.put(POD, manifest("orders-g1", 20))
    assert seen.replace_all(POD, [], "30", None) == {KEY}
    observed = seen.observe(KEY)
    assert observed is not None
    assert observed.pods == ()
    assert seen.put(BINDING, manifest("orders", 40, spec=BOUND)) == KEY
    assert seen.replace_all(BINDING, [], "35", None) == set(), "what is newer than the list stays"


def test_a_binding_that_cannot_be_read_is_kept_apart() -> None:
    seen = cache()
    seen.put(BINDING, manifest("orders", 5, spec={"usersTopic": "u"}))
    assert seen.observe(KEY) is None
    found = seen.unreadable(KEY)
    assert found is not None
    assert found[1].startswith("spec.accountsTopic")


def test_a_generation_that_cannot_be_read_disturbs_nobody() -> None:
    seen = cache()
    assert seen.put(GENERATION, manifest("orders-g1", 5, spec={"number": "x"})) is None
    assert seen.observe(KEY) is not None


@pytest.mark.parametrize(
    ("ended", "failure"),
    [
        (
            {"exitCode": 1, "message": '{"reason": "TopicNotFound", "message": "no users"}'},
            Failure("TopicNotFound", "no users"),
        ),
        ({"exitCode": 1, "message": "Traceback: boom"}, Failure("DriverFailed", "Traceback: boom")),
        (
            {"exitCode": 137, "reason": "OOMKilled"},
            Failure("OOMKilled", "the driver ended with exit code 137"),
        ),
        ({"exitCode": 1, "message": '{"reason": "not one word!"}'}, Failure("notoneword", "not one word!")),
        ({"exitCode": 1, "message": "[]"}, Failure("DriverFailed", "[]")),
    ],
)
def test_why_a_driver_ended(ended: dict[str, Any], failure: Failure) -> None:
    status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
    assert read_pod(manifest("orders-g1", 1, status=status)).failure == failure


def test_why_a_driver_does_not_start() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere/x"'}
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    trouble = read_pod(manifest("orders-g1", 1, status=status)).trouble
    assert trouble == Failure("ImagePullBackOff", 'Back-off pulling image "nowhere/x"')
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    status = {"phase": "Pending", "conditions": [condition]}
    assert read_pod(manifest("orders-g1", 1, status=status)).trouble == Failure("Unschedulable", "no room")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"count": "many"}'])
def test_a_count_of_failures_edited_by_hand_starts_again(text: str | None) -> None:
    assert DriverFailures.read(text) is None


def test_a_merge_patch_takes_away_what_is_no_longer_said() -> None:
    now = {"a": 1, "kafka": {"properties": {"x": "1", "y": "2"}}, "image": "i"}
    then = {"a": 2, "kafka": {"properties": {"y": "2"}}}
    assert difference(now, then) == {"a": 2, "image": None, "kafka": {"properties": {"x": None}}}


async def _run(queue: WakeQueue, until: asyncio.Event) -> None:
    task = asyncio.create_task(queue.run())
    await asyncio.wait_for(until.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_pass_at_a_time_for_a_binding_and_none_is_lost() -> None:
    loop, enough = asyncio.get_running_loop(), asyncio.Event()
    running: set[Key] = set()
    passes: list[Key] = []
    lock = threading.Lock()

    def work(key: Key) -> float | None:
        with lock:
            assert key not in running
            running.add(key)
        if len(passes) < 3:
            loop.call_soon_threadsafe(queue.wake, key)
        time.sleep(0.02)
        with lock:
            running.discard(key)
            passes.append(key)
        if len(passes) >= 4:
            loop.call_soon_threadsafe(enough.set)
        return None

    queue = WakeQueue(work, workers=4, error_base=0.01, error_cap=0.1)
    queue.wake(KEY)
    queue.wake(KEY)
    await _run(queue, enough)
    assert len(passes) == 4


async def test_errors_wait_longer_each_time_and_other_bindings_go_on() -> None:
    loop, enough = asyncio.get_running_loop(), asyncio.Event()
    tried: list[float] = []
    others: list[Key] = []

    def work(key: Key) -> float | None:
        if key != KEY:
            others.append(key)
            return None
        tried.append(time.monotonic())
        if len(tried) == 4:
            loop.call_soon_threadsafe(enough.set)
        raise UnavailableError("away")

    queue = WakeQueue(work, workers=1, error_base=0.05, error_cap=10)
    queue.wake(KEY)
    queue.wake(("shop", "other"))
    await _run(queue, enough)
    waits = [after - before for before, after in itertools.pairwise(tried)]
    assert waits[0] >= 0.05
    assert waits[1] >= 0.1
    assert waits[2] >= 0.2
    assert others == [("shop", "other")]


def test_a_trouble_that_lasts_is_told_once_in_a_while_and_again_after_it_was_over() -> None:
    client = Client(ApiServer())
    now = [0.0]
    reporter = Reporter(client, clock=lambda: now[0])

    def told(reason: str = "Forbidden") -> int:
        reporter.trouble("shop", "orders", "uid", reason, "pods is forbidden")
        return len(client.events_about("shop", "uid"))

    assert [told(), told()] == [1, 1]
    assert told("QuotaExceeded") == 2
    now[0] += 301
    assert told("QuotaExceeded") == 3
    reporter.over("uid")
    assert told("QuotaExceeded") == 4
    assert {(each["message"], each["type"]) for each in client.events_about("shop", "uid")} == {
        ("pods is forbidden", "Warning")
    }
