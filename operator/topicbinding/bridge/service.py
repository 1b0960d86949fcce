"""The bridge's loop: opens a session at the control topic, keeps it going, and begins again when it must.

Started by `main` in a thread of its own. Whatever fails, it says so in `ControlConnected` and tries again; it
never gives up and never ends by itself.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from topicbinding.api import Control, KafkaSpec, TopicBinding
from topicbinding.bridge.answers import Answers
from topicbinding.bridge.apiserver import Away, Gone, Refused
from topicbinding.bridge.journal import Journal
from topicbinding.bridge.kube import Kube
from topicbinding.bridge.metrics import Metrics
from topicbinding.bridge.position import Notice, resume
from topicbinding.bridge.redaction import Redaction
from topicbinding.bridge.report import Reporter
from topicbinding.bridge.session import Session, stored_position
from topicbinding.bridge.settings import BridgeSettings
from topicbinding.kafka.port import Connection
from topicbinding.kafka.records import KafkaProblem, TopicMoved
from topicbinding.kafka.settings import Credentials, KafkaSettingsError, librdkafka, read_credentials, reveal

logger = logging.getLogger(__name__)

_UNREACHABLE: Final = "KafkaUnreachable"


@dataclass(frozen=True)
class _Wiring:
    """Everything that, when it changes, needs a new session."""

    control: Control
    kafka: KafkaSpec
    credentials: Credentials

    def mark(self) -> str:
        secret = "\0".join(value.get_secret_value() for value in self.credentials.values())
        said = self.control.model_dump_json() + self.kafka.model_dump_json() + secret
        return hashlib.sha256(said.encode()).hexdigest()


class _Rewired(Exception):  # noqa: N818 - a turn of events
    pass


class Service:
    """`run` is the loop; `alive`, `journal` and `metrics` are read by the HTTP server."""

    def __init__(
        self,
        kube: Kube,
        settings: BridgeSettings,
        redaction: Redaction,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._settings, self._redaction, self._clock = kube, settings, redaction, clock
        self.journal = Journal()
        self.metrics = Metrics()
        self._reporter = Reporter(kube, clock)
        self._beat_at = clock()
        self._looked_at = self._told_at = float("-inf")
        self._warned: set[str] = set()
        self._stopped = threading.Event()

    @property
    def alive(self) -> bool:
        """Whether the loop still turns. Kafka or the API server being away does not stop it from turning."""
        return self._clock() - self._beat_at < self._settings.alive_seconds

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        backoff = self._settings.backoff_seconds
        while not self._stopped.is_set():
            started = self._clock()
            try:
                self._sit()
                continue
            except _Rewired:
                logger.info("the control settings changed: connecting again")
                continue
            except TopicMoved as moved:
                logger.warning("the control topic is not what it was (%s): looking again", moved)
            except (KafkaProblem, KafkaSettingsError) as problem:
                self._reporter.disconnected(problem.reason, str(problem))
            except Gone:
                logger.warning("the binding is not there; waiting")
            except (Away, Refused) as error:
                self._reporter.disconnected(
                    "ApiServerUnavailable", f"{error}; nothing is lost, waiting for it"
                )
            except Exception as error:
                # A fault of ours must not end control for good, as it once did.
                logger.exception("unexpected")
                self._reporter.disconnected(
                    "InternalError", f"unexpected {type(error).__name__}; trying again"
                )
            if self._clock() - started > 30:
                backoff = self._settings.backoff_seconds
            self._rest(backoff)
            backoff = min(backoff * 2, self._settings.backoff_max_seconds)
        self._reporter.disconnected("Stopped", "the bridge was stopped")
        self._reporter.work()

    def _sit(self) -> None:
        """One session, from connecting to whatever ends it."""
        binding = TopicBinding.read(self._kube.refresh())
        self._reporter.remember(binding)
        control = binding.spec.control
        if control is None:
            self._reporter.disconnected("NoControlTopic", "spec.control is not set: there is nothing to read")
            self._rest(self._settings.look_seconds)
            return
        wiring = self._wiring(control, binding)
        self._redaction.hide(wiring.credentials.values())
        client_id = f"topicbinding-bridge-{self._settings.namespace}-{self._settings.binding}"
        connection = Connection(reveal(librdkafka(wiring.kafka, wiring.credentials)), client_id)
        session = self._open(connection, control)
        try:
            self._looked_at = self._clock()
            session.read_to_the_end(lambda: self._turn(connection, session, wiring))
            logger.info("listening on topic %s", control.topic)
            while not self._stopped.is_set():
                self._follow(session)
                self._turn(connection, session, wiring)
        finally:
            session.close()
            connection.close()

    def _open(self, connection: Connection, control: Control) -> Session:
        described = connection.describe(control.topic, self._settings.kafka_timeout_seconds)
        reader = connection.reader(control.topic)
        try:
            spans = reader.spans(described.partitions, self._settings.kafka_timeout_seconds)
            topic = replace(described, partitions=spans)
            stored, unreadable = stored_position(self._kube.latest())
            start = resume(stored, topic)
            for notice in (unreadable, *start.notices):
                if notice is not None:
                    self._notice(f"{topic.topic_id}/{stored.offsets if stored else ''}", notice)
            if len(spans) > 1:
                several = (
                    f"{topic.name!r} has {len(spans)} partitions: messages are ordered by their timestamps"
                )
                self._notice(f"{topic.topic_id}", Notice("ControlTopicPartitions", several))
            if start.kept is None:
                self.journal.clear()
            answers = Answers(
                connection.sender() if control.dead_letter_topic or control.receipts_topic else None,
                control,
                f"{self._settings.namespace}/{self._settings.binding}",
                self._answer_dropped,
            )
            self._reporter.connected(control.topic)
            return Session(
                self._kube, reader, answers, self._reporter, self.journal, self.metrics, self._settings,
                topic, start, self._clock,
            )  # fmt: skip
        except BaseException:
            reader.close()
            raise

    def _follow(self, session: Session) -> None:
        """Waits for messages, settles them, and uses the quiet between them to tell."""
        busy = self._reporter.has_work or session.waiting
        batch = session.poll(0.005 if busy else self._settings.poll_seconds)
        session.take(batch)
        try:
            session.settle()
            session.tidy()
        except Away as error:
            logger.warning("%s; control messages wait", error)
            self._stopped.wait(self._settings.backoff_seconds)
        # A message goes before telling of the last one, but not for ever.
        if not batch.records or self._clock() - self._told_at > self._settings.tell_seconds:
            self._reporter.work()
            self._told_at = self._clock()

    def _turn(self, connection: Connection, session: Session, wiring: _Wiring) -> None:
        """Housekeeping: a sign of life, and now and then a look at the topic and at the settings."""
        self._beat_at = self._clock()
        self.metrics.connected.set(self._reporter.is_connected)
        session.pump()
        if self._clock() - self._looked_at < self._settings.look_seconds:
            return
        try:
            now = connection.describe(wiring.control.topic, self._settings.kafka_timeout_seconds)
        except KafkaProblem as problem:
            if problem.reason != _UNREACHABLE:
                raise
            # The client finds its way back by itself, and what was read is not lost.
            self._reporter.disconnected(problem.reason, str(problem))
            self._reporter.work()
        else:
            self._reporter.connected(wiring.control.topic)
            if now.topic_id != session.topic.topic_id or set(now.partitions) != set(session.topic.partitions):
                raise TopicMoved("another id or other partitions")
        self._looked_at = self._clock()
        binding = TopicBinding.read(self._kube.latest())
        control = binding.spec.control
        if control is None or self._wiring(control, binding).mark() != wiring.mark():
            raise _Rewired

    def _wiring(self, control: Control, binding: TopicBinding) -> _Wiring:
        own = control.kafka is not None
        directory: Path = self._settings.control_secret_dir if own else self._settings.kafka_secret_dir
        return _Wiring(control, control.kafka or binding.spec.kafka, read_credentials(directory))

    def _rest(self, seconds: float) -> None:
        until = self._clock() + seconds
        while not self._stopped.is_set() and self._clock() < until:
            self._beat_at = self._clock()
            self.metrics.connected.set(self._reporter.is_connected)
            if not self._reporter.work():
                self._stopped.wait(min(0.1, seconds))

    def _notice(self, identity: str, notice: Notice) -> None:
        """Said once: in the log and as an Event."""
        key = f"{notice.reason}/{identity}"
        if key in self._warned:
            return
        self._warned.add(key)
        logger.warning("%s: %s", notice.reason, notice.message)
        self._reporter.tell(f"notice/{key}/{notice.message}", "Warning", notice.reason, notice.message)

    def _answer_dropped(self, message: str) -> None:
        self.metrics.answers_dropped.inc()
        logger.warning("%s", message)
        topic = message.split(";", 1)[0]
        self._notice(topic, Notice("ControlAnswerDropped", topic))
