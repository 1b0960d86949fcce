"""What the job's tests with real Kafka and real Spark share: the broker, the jars, topics, and a driver
process."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.cluster import CACHE, ROOT
from tests.support.kafka_broker import free_port
from tests.support.waiting import eventually
from tests.unit.job.reference import Record
from topicbinding.tables import frames

BROKER = os.environ.get("TB_TEST_KAFKA", "127.0.0.1:9092")


def jars() -> Path:
    """The connector jars and our own, built once for each version of their sources."""
    sources = ROOT / "sparkjob" / "java"
    digest = hashlib.sha256()
    for path in sorted([sources / "pom.xml", *sources.glob("src/**/*.java")]):
        digest.update(path.read_bytes())
    kept = CACHE / "jars" / digest.hexdigest()[:16]
    if not kept.is_dir():
        subprocess.run(["mvn", "-q", "-B", "package"], cwd=sources, check=True, timeout=600)
        fresh = kept.with_suffix(f".{os.getpid()}")
        shutil.copytree(sources / "target" / "jars", fresh)
        try:
            fresh.rename(kept)
        except OSError:
            # Somebody else was quicker.
            shutil.rmtree(fresh)
    return kept


def archive() -> Path:
    """The class archive for these jars: made by the benchmark, used by whoever finds it, because it halves a
    start."""
    return jars().with_suffix(".jsa")


class Topics:
    """Topics of one test, under names of their own, removed at its end."""

    def __init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": BROKER})
        self._prefix = f"job-{uuid.uuid4().hex[:8]}"
        self._made: list[str] = []
        self._producer = Producer({"bootstrap.servers": BROKER, "linger.ms": 2})

    def make(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        topic = f"{self._prefix}-{name}"
        made = self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])
        made[topic].result(30)
        self._made.append(topic)
        # The broker answers before everybody has heard of the topic.
        eventually(
            lambda: len(self._admin.list_topics(topic, timeout=10).topics[topic].partitions) == partitions,
            30,
            f"topic {topic}",
        )
        return topic

    def send(self, topic: str, values: Iterable[bytes | None], partition: int = 0, time_ms: int = 0) -> None:
        for value in values:
            self._send(topic, value, partition, time_ms)
        self.flush()

    def send_records(self, topics: Mapping[str, str], records: Iterable[Record]) -> None:
        """Records to their partitions; Kafka gives the offsets."""
        for record in records:
            self._send(topics[record.side], record.value, record.partition, record.timestamp)
        self.flush()

    def _send(self, topic: str, value: bytes | None, partition: int, time_ms: int) -> None:
        while True:
            try:
                self._producer.produce(topic, value=value, key=b"k", partition=partition, timestamp=time_ms)
                return
            except BufferError:
                self._producer.poll(0.1)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def another(self) -> Topics:
        """A fresh set of names, removed together with these."""
        more = Topics()
        more._made = self._made
        return more

    def close(self) -> None:
        if self._made:
            for future in self._admin.delete_topics(self._made).values():
                future.result(30)


def generation(
    source: Mapping[str, Any] | None,
    number: int = 1,
    spark: Mapping[str, Any] | None = None,
    rehearsal: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {"name": f"test-g{number}", "namespace": "test"},
        "spec": {
            "binding": "test",
            "bindingUid": "uid",
            "number": number,
            "source": dict(source) if source is not None else None,
            "rehearsal": dict(rehearsal) if rehearsal is not None else None,
            "spark": {"mode": "microbatch", **(spark or {})},
        },
    }


def source_of(users: str, accounts: str, join: str = "left", **more: Any) -> dict[str, Any]:
    return {
        "usersTopic": users,
        "accountsTopic": accounts,
        "joinType": join,
        "startingOffsets": "earliest",
        "kafka": {"bootstrapServers": BROKER},
        **more,
    }


class DriverProcess:
    """A real driver in a process of its own, with its Generation in a directory."""

    def __init__(
        self, directory: Path, port: int | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.port = port or free_port()
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self.log = directory / "driver.log"

    def start(self, generation: Mapping[str, Any]) -> Self:
        (self.directory / "generation.json").write_text(json.dumps(generation))
        scratch = self.directory / "tmp"
        scratch.mkdir(exist_ok=True)
        self._starts += 1
        env = os.environ | {
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'sparkjob'}",
            "POD_UID": self._pod,
            "TB_NAMESPACE": "test",
            "TB_GENERATION": generation["metadata"]["name"],
            "TB_GENERATION_DIR": str(self.directory),
            "TB_AUTH": "none",
            "TB_LISTEN": "127.0.0.1",
            "TB_PORT": str(self.port),
            "TB_JARS": str(jars()),
            "TB_ARCHIVE": str(archive()),
            "TB_CHECKPOINT": str(self.directory / "checkpoint"),
            "TB_TERMINATION_LOG": str(self.directory / "termination.json"),
            "TMPDIR": str(scratch),
            **self._env,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topicbinding_job"],
                env=env,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        return self

    def update(self, generation: Mapping[str, Any]) -> None:
        fresh = self.directory / "generation.new"
        fresh.write_text(json.dumps(generation))
        fresh.replace(self.directory / "generation.json")

    @property
    def _pod(self) -> str:
        return f"pod-{self._starts}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def status(self) -> dict[str, Any]:
        path = self.directory / "status.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def wait_phase(self, *phases: str, seconds: float = 180) -> dict[str, Any]:
        def probe() -> dict[str, Any] | None:
            status = self.status
            # What an earlier run said does not count.
            if status.get("phase") in phases and status.get("podUid") == self._pod:
                return status
            if self._process is not None and self._process.poll() is not None:
                raise AssertionError(f"the driver ended with {self._process.returncode}\n{self.tail()}")
            return None

        try:
            return eventually(probe, seconds, f"phase {phases}", every=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status}\n{self.tail()}") from None

    def wait_mode(self, mode: str, seconds: float = 120) -> None:
        eventually(lambda: self.status.get("mode") == mode, seconds, f"mode {mode}")

    def wait_rows(self, table: str, rows: int, seconds: float = 90) -> None:
        try:
            eventually(lambda: self.rows_of(table) >= rows, seconds, f"{rows} rows of {table}", every=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.rows_of(table)}\n{self.tail()}") from None

    def rows_of(self, table: str) -> int:
        listed = json.loads(self.get("/v1/tables"))
        return next((each["rows"] for each in listed["tables"] if each["name"] == table), -1)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            body: bytes = answer.read()
            return body

    def code(self, path: str) -> int:
        try:
            self.get(path)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def table(self, name: str) -> list[dict[str, Any]]:
        body = self.get(f"/v1/tables/{name}?format=arrow&limit=1000000")
        rows: list[dict[str, Any]] = pa.ipc.open_stream(body).read_all().to_pylist()
        return rows

    def wait_end(self, seconds: float = 30) -> int:
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {seconds} s: {self.status}\n{self.tail()}") from None

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM, and how it ended."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait_end(seconds)

    def kill(self) -> None:
        """What a node that fails does: no goodbye, and the JVM goes too."""
        import psutil

        assert self._process is not None
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.kill()
        self._process.wait(10)

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-60:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class StreamReader:
    """A reader of one table's stream that keeps the rows as the frames say."""

    def __init__(self, port: int, table: str) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/tables/{table}/stream"
        self.rows: dict[int, dict[str, Any]] = {}
        self.kinds: list[str] = []
        self.epoch = ""
        self.seq = -1
        self.bye: str | None = None

    async def read(self, until: Any, seconds: float, resume: bool = False) -> None:
        """Read frames until `until(self)`; `resume` asks for what came after the last frame only."""
        query = {"epoch": self.epoch, "seq": str(self.seq)} if resume else {}
        deadline = time.monotonic() + seconds
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(self._url, params=query, max_msg_size=0) as socket,
        ):
            while not until(self):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"waited {seconds} s on the stream; frames: {self.kinds[-20:]}")
                try:
                    message = await socket.receive(timeout=left)
                except TimeoutError:
                    continue
                if message.type is not aiohttp.WSMsgType.BINARY:
                    return
                self._take(message.data)

    def read_sync(self, until: Any, seconds: float, resume: bool = False) -> None:
        asyncio.run(self.read(until, seconds, resume))

    def _take(self, data: bytes) -> None:
        header, rows = frames.decode(data)
        kind = header["type"]
        self.kinds.append(kind)
        if kind == "bye":
            self.bye = header["reason"]
            return
        if kind == "snapshot" and header["part"] == 1:
            self.rows = {}
        for row in rows.to_pylist() if rows is not None else ():
            self.rows[row.pop("_row")] = row
        self.epoch, self.seq = header["epoch"], header["seq"]

    def shown(self) -> list[dict[str, Any]]:
        return [self.rows[number] for number in sorted(self.rows)]
