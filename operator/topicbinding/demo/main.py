"""`python -m topicbinding demo topics|produce|send`: what the demo's pods run, and its tour says."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from itertools import islice
from types import FrameType

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from topicbinding.demo import people, topics

VERSIONS = ("v1", "v2")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="topicbinding demo", description=__doc__)
    parser.add_argument("what", choices=("topics", "produce", "send"))
    parser.add_argument("message", nargs="?", default="", help="for send: the control message, as it is")
    parser.add_argument("--topic", default="bindings-control", help="for send: where to")
    parser.add_argument("--bootstrap", default=os.environ.get("BOOTSTRAP_SERVERS", "kafka.kafka.svc:9092"))
    parser.add_argument("--replication", type=int, default=int(os.environ.get("REPLICATION_FACTOR", "1")))
    parser.add_argument("--seed", type=int, default=7, help="the same seed tells the same story")
    parser.add_argument("--rate", type=float, default=4.0, help="changes per second, on each pair of topics")
    parser.add_argument("--people", type=int, default=40, help="how many there are at the beginning")
    options = parser.parse_args(arguments)
    if options.rate <= 0:
        parser.error("--rate must be more than 0")
    if options.what == "send":
        return send(options)
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    created = topics.create(admin, options.replication)
    print(f"topics created: {', '.join(created) or 'none, all were there'}", flush=True)
    if options.what == "produce":
        return produce(options)
    return 0


def send(options: argparse.Namespace) -> int:
    """One control message, exactly as given; 0 once the broker has it."""
    producer = Producer({"bootstrap.servers": options.bootstrap})
    producer.produce(options.topic, options.message.encode())
    return 1 if producer.flush(10) else 0


def produce(options: argparse.Namespace) -> int:
    """Tell both versions' stories at the asked pace, until asked to stop or a row is lost."""
    stop = threading.Event()

    def leave(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    lost: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            lost.append(f"{message.topic()}: {error.str()}")

    producer = Producer({"bootstrap.servers": options.bootstrap, "linger.ms": 5, "enable.idempotence": True})
    stories = {version: people.story(options.seed, version, options.people) for version in VERSIONS}

    def tell(version: str, count: int) -> None:
        for row in islice(stories[version], count):
            value = json.dumps(row.value, separators=(",", ":"))
            while True:
                try:
                    producer.produce(
                        f"{row.table}-{version}", value.encode(), row.key.encode(), on_delivery=delivered
                    )
                    break
                except BufferError:  # the broker is away; what is queued must leave first
                    producer.poll(0.5)

    for version in VERSIONS:
        tell(version, 2 * options.people)
    print(
        f"{options.people} people and their accounts on each of {', '.join(VERSIONS)}; now they change",
        flush=True,
    )
    due = time.monotonic()
    while not stop.is_set() and not lost:
        for version in VERSIONS:
            tell(version, 1)
        producer.poll(0)
        due = max(due + 1 / options.rate, time.monotonic() - 1)
        stop.wait(max(0.0, due - time.monotonic()))
    producer.flush(10)
    if lost:
        print(
            f"not delivered: {lost[0]}; leaving, so that the topics are looked after again", file=sys.stderr
        )
    return 1 if lost else 0
