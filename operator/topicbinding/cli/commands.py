"""The commands: each takes parsed options and returns an exit code."""

from __future__ import annotations

import json
import signal
import sys
import time
import webbrowser
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from topicbinding.api import TopicBinding, names
from topicbinding.cli.kubectl import Kubectl
from topicbinding.cli.lint import lint as findings_in
from topicbinding.cli.show import Health, health, line_text, status_text, tree_text
from topicbinding.control.message import Refusal, understand

SYSTEM_NAMESPACE: Final = "topicbinding-system"
GATEWAY: Final = "topicbinding-gateway"


def tree(kubectl: Kubectl, options: Namespace) -> int:
    """Binding, generations and pods, as they hang together."""
    name = options.name
    print(tree_text(kubectl.binding(name), kubectl.generations(name), kubectl.pods(name)))
    return 0


def status(kubectl: Kubectl, options: Namespace) -> int:
    """What is wished for, what is served. Exit code: 0 served, 1 on its way, 2 stalled, 3 cannot tell."""
    deadline = time.monotonic() + options.wait
    while True:
        binding = kubectl.binding(options.name)
        found = health(binding)
        if found is not Health.MOVING or time.monotonic() >= deadline:
            print(status_text(binding))
            return int(found)
        time.sleep(0.5)


def watch(kubectl: Kubectl, options: Namespace) -> int:
    """One line per change, until interrupted."""
    before = ""
    for binding in kubectl.watch(options.name):
        line = line_text(binding)
        if line != before:
            now = datetime.now(UTC).strftime("%H:%M:%S")
            print(f"{now} {line}", flush=True)
            before = line
    return 0


def rollback(kubectl: Kubectl, options: Namespace) -> int:
    """Go back to what was served before. While it lingers, that is a flip."""
    previous = kubectl.binding(options.name).status.previous
    if previous is None:
        print("there is nothing to go back to: no generation served before this one", file=sys.stderr)
        return 1
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    kubectl.annotate(options.name, names.ANNOTATION_ROLLBACK, stamp)
    choice = previous.choice
    print(
        f"going back to what generation {previous.generation} served: users {choice.users_topic}, "
        f"accounts {choice.accounts_topic}, {choice.join_type.value} join"
    )
    return 0


def pause(kubectl: Kubectl, options: Namespace) -> int:
    """Leave everything as it is until 'resume'."""
    kubectl.annotate(options.name, names.ANNOTATION_PAUSED, "true")
    print(f"{options.name} is paused; what is served goes on being served")
    return 0


def resume(kubectl: Kubectl, options: Namespace) -> int:
    """Follow the wishes again."""
    kubectl.annotate(options.name, names.ANNOTATION_PAUSED, None)
    print(f"{options.name} follows again")
    return 0


def open_page(kubectl: Kubectl, options: Namespace) -> int:
    """The page in the browser, through a port-forward that lasts until interrupted."""
    namespace = kubectl.binding(options.name).metadata["namespace"]
    address = f"http://127.0.0.1:{options.port}/#/{namespace}/{options.name}/{names.FINAL_TABLE}"

    def ready() -> None:
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if not options.no_browser:
            webbrowser.open(address)

    # The forward must end with us, however we are told to: also where an interrupt was ignored before.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    here = Kubectl(
        tuple(flag for flag in kubectl.flags if not flag.startswith("--namespace=")), kubectl.program
    )
    here.forward(options.system_namespace, GATEWAY, options.port, ready)
    return 0


def lint(_kubectl: Kubectl, options: Namespace) -> int:
    """Check manifests or control messages; '-' reads standard input. Exit code 1 if anything was found."""
    found = 0
    for path in options.files:
        try:
            text = sys.stdin.read() if path == "-" else Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            print(f"{path}: cannot be read ({error.__class__.__name__})", file=sys.stderr)
            return 3
        for finding in findings_in(text):
            found += 1
            print(f"{path}: {finding}")
    return 1 if found else 0


def send(kubectl: Kubectl, options: Namespace) -> int:
    """Send a control message and wait for its verdict. Exit code: 0 taken, 1 rejected, 3 cannot tell."""
    # Here, because the other commands need no Kafka client.
    from topicbinding.cli.sending import deliver

    body = _message(options)
    said = understand(body)
    if isinstance(said, Refusal) and not options.force:
        print(f"not sent: {said.why}", file=sys.stderr)
        return 1
    binding = kubectl.binding(options.name)
    partition, offset = deliver(kubectl, binding, body, options.bootstrap_servers)
    print(f"sent to {binding.spec.control.topic if binding.spec.control else '?'}: offset {offset}")
    if options.wait <= 0:
        return 0
    verdict = _verdict(kubectl, options.name, partition, offset, options.wait)
    if verdict is None:
        print(f"no verdict within {options.wait:g} s; see 'kubectl topicbinding status'", file=sys.stderr)
        return 3
    print(verdict)
    return 1 if verdict.startswith("rejected") else 0


def _message(options: Namespace) -> bytes:
    if options.raw is not None:
        return str(options.raw).encode()
    body = {
        "id": options.id,
        "usersTopic": options.users,
        "accountsTopic": options.accounts,
        "joinType": options.join,
        "type": "rollback" if options.rollback else None,
    }
    return json.dumps({name: value for name, value in body.items() if value is not None}).encode()


def _verdict(kubectl: Kubectl, name: str, partition: int, offset: int, seconds: float) -> str | None:
    """The status tells the newest message's verdict, so ours is known while no later one has come."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        binding: TopicBinding = kubectl.binding(name)
        control = binding.status.control
        if control is not None and control.position.get(str(partition), 0) > offset:
            if control.position[str(partition)] == offset + 1:
                return f"{control.last_verdict}: {control.last_reason}"
            return "taken (later messages have come since; see control_raw for its verdict)"
        time.sleep(0.2)
    return None
