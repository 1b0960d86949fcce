"""The guided tour at the end of `make demo`: control messages, what becomes of them, and how long it took.

Each stop says what to look at, sends one message as any Kafka client would, and waits for what must follow.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localcluster.cluster import kubectl
from localcluster.report import Trouble, say
from localcluster.settings import Settings

NAMESPACE, BINDING = "demo", "customers"
Status = dict[str, Any]


@dataclass(frozen=True)
class Stop:
    """One message of the tour."""

    title: str
    look: str
    message: dict[str, str]
    arrived: Callable[[Status], bool]
    tell: Callable[[Status], str]
    seconds: float = 120


def condition(status: Status, kind: str) -> dict[str, str]:
    return next((each for each in status.get("conditions", []) if each["type"] == kind), {})


def serving(status: Status, **expected: str) -> bool:
    ready = condition(status, "Ready").get("status") == "True"
    return ready and all(status.get(name) == value for name, value in expected.items())


def shown(status: Status) -> str:
    topics = f"{status.get('usersTopic')} + {status.get('accountsTopic')}, {status.get('joinType')}"
    return f"generation {status.get('activeGeneration')} serves {topics}"


def missing_topic(status: Status) -> bool:
    told = (condition(status, kind).get("reason") for kind in ("Progressing", "Stalled"))
    return "TopicNotFound" in told


def answer(status: Status) -> str:
    control = status.get("control", {})
    return f"{control.get('lastVerdict')}: {control.get('lastReason')}"


def why_not(status: Status) -> str:
    for kind in ("Stalled", "Progressing"):
        told = condition(status, kind)
        if told.get("reason") == "TopicNotFound":
            return f"{told['message']}; {shown(status)}"
    return shown(status)


STOPS = (
    Stop(
        "other topics",
        "the open table moves to users-v2 and accounts-v2: no reload, and at no moment without rows",
        {"usersTopic": "users-v2", "accountsTopic": "accounts-v2"},
        lambda status: serving(status, usersTopic="users-v2", accountsTopic="accounts-v2"),
        shown,
    ),
    Stop(
        "another join",
        "a partial message: the topics stay, the join becomes inner",
        {"joinType": " INNER "},
        lambda status: serving(status, joinType="inner"),
        shown,
    ),
    Stop(
        "a misspelt message",
        "nothing moves; the message is answered, with what was probably meant",
        {"userTopic": "users-v1"},
        lambda status: status.get("control", {}).get("lastVerdict") == "rejected",
        answer,
        30,
    ),
    Stop(
        "a topic that is not there",
        "a new generation tries and says why it cannot; the old table stays",
        {"usersTopic": "users-v9"},
        missing_topic,
        why_not,
    ),
    Stop(
        "rollback: take the last wish back",
        "what was served all the time is wished for again; nothing is built",
        {"type": "rollback"},
        lambda status: serving(status, joinType="inner") and not missing_topic(status),
        shown,
    ),
    Stop(
        "rollback: go back one further",
        "the generation with the left join still lingers: a flip, no pod is started",
        {"type": "rollback"},
        lambda status: serving(status, joinType="left"),
        shown,
    ),
)


def run(settings: Settings, only: range | None = None) -> None:
    """The whole tour. On a terminal it waits for Enter before each stop; without one it goes on by itself."""
    stops = STOPS if only is None else tuple(STOPS[index] for index in only)
    for number, stop in enumerate(stops, 1):
        say(f"\n[tour {number}/{len(stops)}] {stop.title}")
        say(f"    look at: {stop.look}")
        text = json.dumps(stop.message)
        if sys.stdin.isatty() and sys.stdout.isatty():
            input(f"    Enter sends {text} ")
        else:
            say(f"    sends {text}")
        begun = time.monotonic()
        send(settings, text)
        status = wait(settings, stop)
        say(f"    {stop.tell(status)}")
        say(f"    after {time.monotonic() - begun:.1f} s")


def send(settings: Settings, text: str) -> None:
    words = ("exec", "-n", NAMESPACE, "deployment/sample-data", "--", "python", "-m", "topicbinding")
    kubectl(settings, *words, "demo", "send", text)


def wait(settings: Settings, stop: Stop) -> Status:
    deadline = time.monotonic() + stop.seconds
    while True:
        found = kubectl(settings, "get", "topicbinding", BINDING, "-n", NAMESPACE, "-o", "json")
        status: Status = json.loads(found).get("status", {})
        if stop.arrived(status):
            return status
        if time.monotonic() > deadline:
            raise Trouble(
                f"{stop.title}: not within {stop.seconds:.0f} s; now {shown(status)}",
                f"look at `kubectl describe topicbinding {BINDING} -n {NAMESPACE}` "
                f"(with KUBECONFIG={settings.kubeconfig}) and at docs/runbooks/",
            )
        time.sleep(0.1)
