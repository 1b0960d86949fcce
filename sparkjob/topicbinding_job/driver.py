"""The driver's life: ask Kafka, pin the offsets, read the backlog, catch up, go on live, stop when told.

`__main__` runs it. Everything it touches is behind a module of its own (topics, session, query, log, serve,
kube); what is decided here is the order, what is retried, and what people are told.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.sql import SparkSession

from topicbinding.api import CheckpointType, Generation, Mode, Phase, Source, names
from topicbinding.kafka.problems import TOPIC_NOT_FOUND, UNREACHABLE
from topicbinding.kafka.records import KafkaProblem
from topicbinding.kafka.settings import (
    KafkaSettingsError,
    jvm,
    jvm_system_properties,
    librdkafka,
    read_credentials,
    reveal,
)
from topicbinding_job import session as spark_session
from topicbinding_job import warmup, wire
from topicbinding_job.ingest import Ingest
from topicbinding_job.kube import ApiAway, GenerationPort
from topicbinding_job.live import Live
from topicbinding_job.log import TableLog
from topicbinding_job.query import Query, Reading
from topicbinding_job.rehearsal import rehearse
from topicbinding_job.reporter import Reporter
from topicbinding_job.serve import Server
from topicbinding_job.settings import Settings
from topicbinding_job.state import DriverState
from topicbinding_job.topics import Plan, Topics

logger = logging.getLogger(__name__)

TRIES: Final = 3
"""A broker that is just being restarted, or a topic that was made a moment ago, is no reason to give up; one
that is not there should be said within seconds."""
LARGE_BACKLOG: Final = 100_000
"""Rows that are worth being read by several tasks."""
_MAY_PASS: Final = (UNREACHABLE, TOPIC_NOT_FOUND)


class Stopped(Exception):  # noqa: N818 - what was asked for
    """Somebody asked us to stop."""


class CannotWork(Exception):  # noqa: N818 - it carries the condition reason that it becomes
    """The generation's choice cannot work."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Driver:
    """One run of one generation's driver."""

    def __init__(
        self,
        settings: Settings,
        port: GenerationPort,
        server: Server,
        state: DriverState,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._port = port
        self._server = server
        self._state = state
        self._stop = stop
        self._reporter = Reporter(port, state, settings.report_seconds)
        self._live: Live | None = None
        self._leave_behind: Callable[[], None] = lambda: None

    @property
    def reporter(self) -> Reporter:
        return self._reporter

    def run(self) -> None:
        """Until stopped; raises what went wrong."""
        generation = self._read()
        self._state.number = generation.spec.number
        self._check_storage(generation)
        self._reporter.start()
        # The JVM starts while Kafka is asked: neither needs the other, and bad news must not wait for it.
        starting = ThreadPoolExecutor(1, thread_name_prefix="session")
        session = starting.submit(self._start_session, generation)
        starting.shutdown(wait=False)
        if generation.spec.source is None:
            generation = self._stand_by(session.result(), generation)
        source = generation.spec.source
        if source is None:
            raise Stopped
        if self._state.phase is not Phase.STARTING:
            self._state.move(Phase.STARTING, "Starting")
        kafka = self._kafka(source)
        topics, plan = self._plan(source, kafka[0], generation)
        self._pin(plan)
        self._read_tables(session.result(), generation, source, kafka[1], topics, plan)

    def close(self) -> None:
        """Stop reading; the tables stay readable."""
        if self._live is not None:
            self._live.close()
        # A pod's volumes go with it; what stands elsewhere only we can remove.
        self._leave_behind()

    def _read(self) -> Generation:
        while not self._stop.is_set():
            try:
                return self._port.read()
            except ApiAway as trouble:
                logger.warning("waiting for the API server: %s", trouble)
                self._stop.wait(0.5)
        raise Stopped

    def _check_storage(self, generation: Generation) -> None:
        spark = generation.spec.spark
        if spark.executors.instances and spark.checkpoint.type is CheckpointType.EMPTY_DIR:
            raise CannotWork(
                "CheckpointNotShared",
                "executors need a checkpoint that all of them see: "
                "set spark.checkpoint.type to 'pvc' or 'uri'",
            )

    def _start_session(self, generation: Generation) -> SparkSession:
        started = time.monotonic()
        spec = generation.spec
        labels = {names.LABEL_BINDING: spec.binding, names.LABEL_GENERATION: str(spec.number)}
        session = spark_session.start(self._settings, spec.spark, labels)
        self._state.archive_used = spark_session.archive_used(self._settings)
        logger.info("session up after %.1f s", time.monotonic() - started)
        if self._settings.archive.exists() and not self._state.archive_used:
            logger.warning("the class archive %s was not used: cold starts are slow", self._settings.archive)
        return session

    def _stand_by(self, session: SparkSession, generation: Generation) -> Generation:
        spark, rehearsal = generation.spec.spark, generation.spec.rehearsal
        # A cold standby is still a standby.
        try:
            seconds = warmup.warm(session, self._settings.scratch, spark.mode)
            logger.info("warm after %.1f s", seconds)
        except Exception:
            logger.exception("the warm-up failed")
        # In executors a checkpoint of the rehearsal's own would have to be shared.
        if rehearsal is not None and not spark.executors.instances:
            try:
                _allow_in_jvm(session, rehearsal)
                seconds = rehearse(session, self._settings, rehearsal, self._kafka(rehearsal), spark.mode)
                logger.info("rehearsed in %.1f s", seconds)
            except Exception as error:
                logger.warning("the rehearsal failed: %s", error)
        self._state.move(Phase.STANDBY, "Standby", "warm, waiting for a source")
        found = self._port.wait_for_source(self._stop)
        if found is None:
            raise Stopped
        return found

    def _kafka(self, source: Source) -> tuple[dict[str, str], dict[str, str]]:
        """Settings in both dialects."""
        credentials = read_credentials(self._settings.secret_dir)
        return reveal(librdkafka(source.kafka, credentials)), reveal(jvm(source.kafka, credentials))

    def _plan(self, source: Source, kafka: dict[str, str], generation: Generation) -> tuple[Topics, Plan]:
        topics = Topics(kafka, self._settings.kafka_timeout / TRIES)
        for attempt in range(1, TRIES + 1):
            try:
                return topics, topics.plan(source, generation.status.start_offsets)
            except KafkaProblem as problem:
                if problem.reason not in _MAY_PASS or attempt == TRIES:
                    raise
                self._state.move(Phase.STARTING, problem.reason, str(problem))
                if self._stop.wait(0.5):
                    raise Stopped from None
        raise AssertionError("unreachable")

    def _pin(self, plan: Plan) -> None:
        """Where reading begins must stand in the Generation before anything is read."""
        self._state.plan = plan
        self._state.lag = plan.backlog
        self._state.message = "; ".join(plan.notes)
        if not self._reporter.say_now(self._stop):
            raise Stopped

    def _read_tables(
        self,
        session: SparkSession,
        generation: Generation,
        source: Source,
        kafka: dict[str, str],
        topics: Topics,
        plan: Plan,
    ) -> None:
        _allow_in_jvm(session, source)
        spark = generation.spec.spark
        room = spark_session.table_bytes(self._settings.memory)
        log = TableLog(source.tables, source.join_type, spark.max_rows, room)
        self._server.watch(log)
        self._state.log = log
        self._state.move(Phase.READING, "Reading", "; ".join(plan.notes))
        inside = spark.executors.instances == 0
        slots = self._settings.slots if inside else spark.executors.instances * spark.executors.cores
        reading = Reading(
            source=source,
            plan=plan,
            kafka=kafka,
            checkpoint=self._checkpoint(session, generation),
            batch_rows=self._settings.batch_rows,
            # A small backlog is read faster by fewer: every task makes a client of its own, in every batch.
            tasks=1 if plan.backlog < LARGE_BACKLOG else self._settings.cores if inside else slots,
        )
        query = Query(session, reading, log.apply)
        self._live = Live(
            query=query,
            log=log,
            topics=topics,
            plan=plan,
            source=source,
            state=self._state,
            settings=self._settings,
            stop=self._stop,
            mode=spark.mode,
            enough_slots=plan.tasks(spark_session.shuffle_partitions(spark)) <= slots,
            open_ingest=lambda: Ingest(
                "127.0.0.1" if inside else self._settings.pod_ip,
                0 if inside else self._settings.ingest_port,
                wire.schema(source.tables),
                log.apply,
            ),
        )
        self._live.run()

    def _checkpoint(self, session: SparkSession, generation: Generation) -> str:
        """A directory of this run alone: a new run reads from the pinned offsets into empty tables."""
        spec = generation.spec
        checkpoint = spec.spark.checkpoint
        if checkpoint.type is CheckpointType.URI and checkpoint.uri:
            root = checkpoint.uri.rstrip("/")
        else:
            root = f"file://{self._settings.checkpoint_root}"
        place = f"{root}/{spec.binding_uid}/{spec.number}"
        # What an earlier run left is of no use to anybody: its tables are gone. Neither will ours be.
        spark_session.delete_tree(session, place)
        if checkpoint.type is CheckpointType.URI:
            self._leave_behind = lambda: spark_session.delete_tree(session, place)
        return f"{place}/{uuid.uuid4().hex[:12]}"


def _allow_in_jvm(session: SparkSession, source: Source) -> None:
    for name, value in jvm_system_properties(source.kafka).items():
        session._jvm.java.lang.System.setProperty(name, value)  # type: ignore[union-attr]


def reason_of(error: BaseException) -> tuple[str, str]:
    """The condition reason and the sentence for an error that ends the driver."""
    if isinstance(error, KafkaProblem | KafkaSettingsError | CannotWork):
        return error.reason, str(error)
    reason = getattr(error, "reason", None)
    return (reason if isinstance(reason, str) else type(error).__name__), str(error) or repr(error)


__all__ = ["CannotWork", "Driver", "Mode", "Stopped", "reason_of"]
