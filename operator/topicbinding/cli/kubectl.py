"""The command line's way to the cluster: kubectl itself, with the flags the person gave.

A plugin is started by kubectl, so it is there, and context, credentials and proxies are as people know them.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topicbinding.api import Generation, TopicBinding, names

_BINDINGS = f"{names.BINDINGS}.{names.GROUP}"
_GENERATIONS = f"{names.GENERATIONS}.{names.GROUP}"


class KubectlError(Exception):
    """What kubectl said."""


@dataclass(frozen=True)
class Kubectl:
    """One cluster and namespace, as the flags say."""

    flags: tuple[str, ...] = ()
    program: str = "kubectl"

    def run(self, *arguments: str) -> str:
        return self._run((*self.flags, *arguments))

    def binding(self, name: str) -> TopicBinding:
        return TopicBinding.read(self._json("get", _BINDINGS, name))

    def generations(self, name: str) -> list[Generation]:
        found = self._json("get", _GENERATIONS, "-l", f"{names.LABEL_BINDING}={name}")["items"]
        return sorted((Generation.read(each) for each in found), key=lambda each: each.spec.number)

    def pods(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._json("get", "pods", "-l", f"{names.LABEL_BINDING}={name}")[
            "items"
        ]
        return found

    def annotate(self, name: str, key: str, value: str | None) -> None:
        change = f"{key}-" if value is None else f"{key}={value}"
        self.run("annotate", "--overwrite", _BINDINGS, name, change)

    def secret(self, name: str) -> dict[str, bytes]:
        data: Mapping[str, str] = self._json("get", "secret", name).get("data") or {}
        return {key: base64.b64decode(value) for key, value in data.items()}

    def watch(self, name: str) -> Iterator[TopicBinding]:
        """Every state the binding goes through, from now on."""
        command = [self.program, *self.flags, "get", _BINDINGS, name, "--watch", "-o", "json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None  # noqa: S101 - asked for above
            try:
                for document in _documents(process.stdout):
                    yield TopicBinding.read(document)
            finally:
                process.terminate()
            assert process.stderr is not None  # noqa: S101
            said = process.stderr.read().strip()
        if said:
            raise KubectlError(said)

    def forward(self, namespace: str, service: str, port: int, ready: Callable[[], None]) -> None:
        """Until it ends or is interrupted; `ready` is called when connections are taken."""
        where = (f"--namespace={namespace}", "port-forward", f"service/{service}", f"{port}:80")
        command = [self.program, *self.flags, *where]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None  # noqa: S101 - asked for above
            try:
                if process.stdout.readline().startswith("Forwarding from"):
                    ready()
                for _ in process.stdout:
                    pass  # a line for every connection
            finally:
                process.terminate()
        raise KubectlError(f"the forward to {namespace}/{service} ended")

    def _json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def _run(self, arguments: Sequence[str]) -> str:
        try:
            ended = subprocess.run(
                [self.program, *arguments], capture_output=True, text=True, check=False, timeout=60
            )
        except FileNotFoundError:
            raise KubectlError("kubectl is not on the PATH") from None
        except subprocess.TimeoutExpired:
            raise KubectlError("kubectl did not answer within 60 s") from None
        if ended.returncode != 0:
            raise KubectlError(ended.stderr.strip() or ended.stdout.strip())
        return ended.stdout


def _documents(lines: Iterator[str] | Any) -> Iterator[Any]:
    """kubectl writes one pretty-printed object after another; an object ends where its brace does."""
    text = ""
    for line in lines:
        text += line
        if line.startswith("}"):
            yield json.loads(text)
            text = ""
