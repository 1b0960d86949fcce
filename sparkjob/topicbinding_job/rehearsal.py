"""A standby's rehearsal: it reads a little of what its binding asks for, through the real query, and
forgets it.

`driver` runs it once, after the warm-up with made-up rows. What is left to do when a standby is given its
source is then what differs from the rehearsal: which topics, and which rows.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession

from topicbinding.api import Mode, Source
from topicbinding_job import wire
from topicbinding_job.ingest import Ingest
from topicbinding_job.log import TableLog
from topicbinding_job.query import Query, Reading
from topicbinding_job.settings import Settings
from topicbinding_job.topics import Plan, Span, Topics

ROWS: Final = 2_000
"""Of each partition, the last ones."""
SECONDS: Final = 15.0
"""The longest rehearsal of one speed; on a busy machine it ends early rather than delay a swap."""
PASSES: Final = 2


def rehearse(
    session: SparkSession,
    settings: Settings,
    source: Source,
    kafka: tuple[dict[str, str], dict[str, str]],
    mode: Mode,
) -> float:
    """Both speeds, if both may be asked for; returns how long it took."""
    started = time.monotonic()
    plan = Topics(kafka[0], settings.kafka_timeout).plan(source, None)
    plan = Plan(_last_rows(plan.users), _last_rows(plan.accounts))
    both = mode is not Mode.MICROBATCH and plan.tasks(shuffle=1) <= settings.slots
    for _ in range(PASSES):
        place = tempfile.mkdtemp(prefix="rehearsal-", dir=settings.scratch)
        log = TableLog(source.tables, source.join_type)
        reading = Reading(source, plan, kafka[1], f"file://{place}", settings.batch_rows, settings.cores)
        query = Query(session, reading, log.apply)
        ingest: Ingest | None = None
        try:
            query.start_microbatches()
            _until(lambda query=query: query.reached() is not None, query)  # type: ignore[misc]
            if both:
                query.stop()
                ingest = Ingest("127.0.0.1", 0, wire.schema(source.tables), log.apply)
                query.start_realtime(ingest.host, ingest.port, ingest.token, settings.realtime_batch)
                _until(lambda ingest=ingest: ingest.writers > 0, query)  # type: ignore[misc]
        finally:
            query.stop()
            if ingest is not None:
                ingest.close()
            shutil.rmtree(place, ignore_errors=True)
    return time.monotonic() - started


def _last_rows(span: Span) -> Span:
    ends = span.end
    return replace(span, start={number: max(at, ends[number] - ROWS) for number, at in span.start.items()})


def _until(done: Callable[[], bool], query: Query) -> None:
    end = time.monotonic() + SECONDS
    while not done() and time.monotonic() < end:
        query.check()
        time.sleep(0.02)
