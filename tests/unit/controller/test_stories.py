"""Golden stories: what people read when a binding lives through the named scenarios.

Each is a text file in stories/. Set TB_WRITE_GOLDEN=1 to write them anew; then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.controller.world import World
from topicbinding.api import names
from topicbinding.controller.ports import EVENT

STORIES = Path(__file__).parent / "stories"


class Story(World):
    """Writes down, with the time since the beginning, what is done to the world and what the controller
    says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lines: list[str] = []
        self.begun = self.server.now
        self.heard: set[str] = set()
        self.seen = ""

    def line(self, who: str, what: str) -> None:
        since = (self.server.now - self.begun).total_seconds()
        self.lines.append(f"{since:7.1f} s  {who:<11}{what}")

    def note(self) -> None:
        for each in sorted(self.server.all(EVENT), key=lambda each: int(each["metadata"]["resourceVersion"])):
            if each["metadata"]["name"] not in self.heard:
                self.heard.add(each["metadata"]["name"])
                mark = "! " if each["type"] == "Warning" else ""
                self.line("controller", mark + each["message"])
        words = [self.condition(kind) for kind in ("Ready", "Progressing", "Stalled")]
        said = ", ".join(
            f"{kind} {word[0]} ({word[1]})"
            for kind, word in zip(("Ready", "Progressing", "Stalled"), words, strict=True)
        )
        if said != self.seen:
            self.seen = said
            self.line("status", f"active {self.active or '-'}: {said}")

    def settle(self, passes: int = 40) -> None:
        super().settle(passes)
        self.note()

    def wish(self, **changes: object) -> None:
        self.line("person", f"wishes {changes}" if changes else "creates the binding")
        self.apply(**changes)
        self.settle()

    def catch_up(self, number: int) -> None:
        self.line("driver", f"generation {number} has caught up")
        self.driver_catches_up(number)
        self.settle()

    def later(self, seconds: float) -> None:
        self.wait(seconds)

    def served(self) -> None:
        self.wish()
        self.catch_up(1)
        self.later(60)


def a_swap(story: Story) -> None:
    story.served()
    story.wish(usersTopic="users-v2", joinType="inner")
    story.catch_up(2)
    story.later(10)


def back_within_the_linger(story: Story) -> None:
    story.served()
    story.wish(usersTopic="users-v2")
    story.catch_up(2)
    story.later(3)
    story.wish(usersTopic="users-v1")
    story.later(10)


def a_rollback(story: Story) -> None:
    story.served()
    story.wish(usersTopic="users-v2")
    story.catch_up(2)
    story.later(20)
    story.line("person", "asks for a rollback")
    story.annotate(names.ANNOTATION_ROLLBACK, "now")
    story.settle()
    story.catch_up(3)
    story.later(10)


def a_topic_that_is_not_there(story: Story) -> None:
    story.served()
    story.wish(usersTopic="user-v2", failedRetentionSeconds=30)
    for _ in range(5):
        story.line("driver", "generation 2 fails")
        story.driver_fails(2, '{"reason": "TopicNotFound", "message": "topic user-v2 does not exist"}')
        story.settle()
        while 2 not in story.pods() or (story.pods()[2].finished and not story.generations()[2].given_up):
            story.later(0.5)
    story.wish(usersTopic="users-v2")
    story.catch_up(3)
    story.later(60)


def a_driver_is_lost(story: Story) -> None:
    story.served()
    story.line("world", "the driver pod of generation 1 vanishes")
    story.pod_vanishes(1)
    story.settle()
    story.later(3)
    story.catch_up(1)


def too_late(story: Story) -> None:
    story.served()
    story.wish(usersTopic="huge", progressDeadlineSeconds=30, failedRetentionSeconds=60)
    story.later(31)
    story.later(65)
    story.catch_up(3)
    story.later(10)


def a_burst_of_wishes(story: Story) -> None:
    story.served()
    for number in range(1, 6):
        story.line("person", f"wishes users-{number}")
        story.apply(usersTopic=f"users-{number}")
        story.settle()
    story.later(2)
    story.catch_up(3)
    story.later(10)


def more_swaps_than_may_linger(story: Story) -> None:
    story.wish(linger={"seconds": 20, "maxGenerations": 1})
    story.catch_up(1)
    story.later(60)
    story.wish(usersTopic="users-v2")
    story.catch_up(2)
    story.later(5)
    story.wish(usersTopic="users-v3")
    story.catch_up(3)
    story.later(45)


def with_a_standby(story: Story) -> None:
    story.wish(standby=1)
    story.catch_up(1)
    story.line("driver", "generation 2 is warm")
    story.pod_runs(2)
    story.report(2, "Standby")
    story.later(60)
    story.wish(usersTopic="users-v2")
    story.catch_up(2)
    story.later(10)


def suspend_and_resume(story: Story) -> None:
    story.served()
    story.wish(state="Suspended")
    story.later(30)
    story.wish(state="Running")
    story.later(3)
    story.catch_up(1)


TOLD: tuple[Callable[[Story], None], ...] = (
    a_swap,
    back_within_the_linger,
    a_rollback,
    a_topic_that_is_not_there,
    a_driver_is_lost,
    too_late,
    a_burst_of_wishes,
    more_swaps_than_may_linger,
    with_a_standby,
    suspend_and_resume,
)


@pytest.mark.parametrize("tell", TOLD, ids=lambda tell: tell.__name__)
def test_story(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    text = "\n".join(story.lines) + "\n"
    path = STORIES / f"{tell.__name__}.txt"
    if os.environ.get("TB_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
