"""control_raw's memory, and the log's blindness to secrets."""

from __future__ import annotations

import io
import logging

from pydantic import SecretStr

from topicbinding.api import Choice
from topicbinding.bridge.fold import Base, Heard, Judged, Verdict, fold
from topicbinding.bridge.journal import Entry, Journal, rfc3339
from topicbinding.bridge.outcome import End, Outcome
from topicbinding.bridge.redaction import Redaction
from topicbinding.control.message import Wish


def entry(offset: int, verdict: Verdict = Verdict.APPLIED) -> Entry:
    return Entry.of(Judged(Heard(0, offset, 1_700_000_000_000, Wish(id="r"), "{}"), verdict, "why"))


def test_the_last_two_hundred_in_order() -> None:
    journal = Journal()
    for offset in range(500):
        journal.add(entry(offset))
    assert [row["offset"] for row in journal.rows()] == list(range(300, 500))
    assert [trace.offset for trace in journal.trail()] == list(range(300, 500))


def test_a_row_says_everything() -> None:
    journal = Journal()
    journal.add(entry(5))
    journal.became(0, 5, Outcome(7, End.FAILED, "no such topic"))
    journal.became(0, 99, Outcome(8))  # long forgotten: nothing happens
    assert journal.rows() == [
        {
            "timestamp": "2023-11-14T22:13:20.000Z",
            "partition": 0,
            "offset": 5,
            "value": "{}",
            "id": "r",
            "verdict": "applied",
            "reason": "why; no such topic",
            "generation": 7,
            "outcome": "failed",
        }
    ]


def test_merged_messages_show_the_generation_of_the_one_they_were_folded_into() -> None:
    base = Base(
        Choice.read({"usersTopic": "u1", "accountsTopic": "a1", "kafka": {"bootstrapServers": "broker:9092"}})
    )
    wishes = [Heard(0, offset, 0, Wish(users_topic=f"u{offset}"), "{}") for offset in range(5, 8)]
    journal = Journal()
    journal.add(entry(4, Verdict.MERGED))
    for judged in fold(base, wishes).judged:
        journal.add(Entry.of(judged))
    journal.became(0, 7, Outcome(3, End.SERVING))
    said = [(row["verdict"], row["generation"], row["outcome"]) for row in journal.rows()]
    assert said == [
        ("merged", None, None),
        ("merged", 3, None),
        ("merged", 3, None),
        ("applied", 3, "serving"),
    ]


def test_a_message_whose_verdict_is_forgotten_has_none() -> None:
    journal = Journal()
    journal.add(Entry.unknown(Heard(0, 1, 0, Wish(), "{}")))
    assert journal.rows()[0]["verdict"] is None
    assert journal.trail() == ()


def test_nonsense_times_do_not_break_a_row() -> None:
    assert rfc3339(10**18) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(-(10**18)) == "1970-01-01T00:00:00.000Z"


def test_no_log_line_shows_a_secret_wherever_it_came_from() -> None:
    redaction, stream = Redaction(), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(redaction)
    logger = logging.getLogger("test-redaction")
    logger.propagate = False
    logger.addHandler(handler)
    redaction.hide([SecretStr("hunter2-hunter2"), SecretStr("hunter2"), SecretStr("x")])
    logger.warning("login with %s failed", "hunter2-hunter2")
    try:
        raise ValueError("bad password hunter2")
    except ValueError:
        logger.exception("unexpected: %s", {"password": "hunter2"})
    shown = stream.getvalue()
    assert "hunter2" not in shown
    assert "ValueError: bad password **********" in shown
    assert "unexpected" in shown
