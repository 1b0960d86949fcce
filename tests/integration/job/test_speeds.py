"""Both speeds of the query on real Kafka: the same tables as the reference, whatever is stopped and changed
when."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.integration.job import world
from tests.integration.job.test_transform import compare
from tests.unit.job.stories import cut, story
from topicbinding.api import JoinType, Source
from topicbinding_job import wire
from topicbinding_job.ingest import Ingest
from topicbinding_job.log import TableLog
from topicbinding_job.query import Query, Reading
from topicbinding_job.topics import Topics


@pytest.mark.parametrize(
    ("join", "speeds", "seed"),
    [
        (JoinType.LEFT, ["microbatch", "realtime", "microbatch", "realtime"], 11),
        (JoinType.INNER, ["microbatch", "realtime"], 12),
        (JoinType.NATURAL, ["realtime", "realtime"], 13),
    ],
)
def test_the_same_tables_at_every_speed(
    spark: SparkSession, topics: world.Topics, tmp_path: Path, join: JoinType, speeds: list[str], seed: int
) -> None:
    rng = random.Random(seed)
    # The stories' times are old; the broker must not clean them up meanwhile.
    keep = {"retention.ms": "-1"}
    places = {side: topics.make(side, partitions=2, config=keep) for side in wire.SIDES}
    source = Source.model_validate(world.source_of(places["users"], places["accounts"], join.value))
    plan = Topics({"bootstrap.servers": world.BROKER}, 10).plan(source, None)
    kafka = {"bootstrap.servers": world.BROKER}
    reading = Reading(source, plan, kafka, str(tmp_path / "checkpoint"), 40, 2)
    log = TableLog(source.tables, join)
    query = Query(spark, reading, log.apply)
    ingest = Ingest("127.0.0.1", 0, wire.schema(source.tables), log.apply)
    records = [replace(each, offset=0) for each in story(seed, length=400)]
    chunks = [records[start : start + 400 // len(speeds)] for start in range(0, 400, 400 // len(speeds))]
    given = []
    offsets: dict[tuple[str, int], int] = {}
    try:
        for speed, chunk in zip(speeds, chunks, strict=True):
            query.stop()
            if speed == "microbatch":
                query.start_microbatches()
            else:
                query.start_realtime(ingest.host, ingest.port, ingest.token, "10 seconds")
            for batch in cut(rng, chunk):
                topics.send_records(places, batch)
            for each in chunk:
                place = (each.side, each.partition)
                given.append(replace(each, offset=offsets.get(place, 0)))
                offsets[place] = offsets.get(place, 0) + 1
            # Half of the changes of speed come in the middle of the reading.
            if speed is speeds[-1] or rng.random() < 0.5:
                compare(log, given, source.tables, join, query.check)
        compare(log, given, source.tables, join, query.check)
        assert ingest.failure is None
        for side in log.side_rows:
            for partition in side.partitions:
                places_of = side._places.view
                mine = places_of[places_of >> 48 == partition]
                assert (np.diff(mine) > 0).all(), "a partition's rows must keep the order of their offsets"
    finally:
        query.stop()
        ingest.close()
