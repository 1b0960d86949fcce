"""What was last seen of every binding, fed by watch events, by listings and by the answers to our own writes.

A cache and nothing more: it is rebuilt from the API server at any time, and whatever must not rest on an
old view
is read again first. Thread-safe: handlers feed it from the event loop, workers read it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from topicbinding.api import names
from topicbinding.controller.observed import (
    Manifest,
    SeenBinding,
    SeenGeneration,
    SeenPod,
    SeenService,
    component,
    read_binding,
    read_generation,
    read_pod,
    read_service,
)
from topicbinding.controller.ports import BINDING, GENERATION, POD, SERVICE, Kind

log = logging.getLogger("topicbinding.controller")

Key = tuple[str, str]  # namespace and name of a binding
Seen = SeenBinding | SeenGeneration | SeenPod | SeenService


@dataclass(slots=True)
class _Shelf:
    """Everything known about one binding."""

    binding: SeenBinding | None = None
    unreadable: tuple[Manifest, str] | None = None  # what the API server let through and the models refuse
    generations: dict[str, SeenGeneration] = field(default_factory=dict)
    pods: dict[str, SeenPod] = field(default_factory=dict)
    service: SeenService | None = None
    bridge: bool = False

    @property
    def empty(self) -> bool:
        return not (
            self.binding or self.unreadable or self.generations or self.pods or self.service or self.bridge
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """One consistent look at the cache."""

    binding: SeenBinding
    generations: tuple[SeenGeneration, ...]
    pods: tuple[SeenPod, ...]
    service: SeenService | None
    bridge: bool


class Cache:
    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._shelves: dict[Key, _Shelf] = {}
        # A late answer must not bring back what a later event has taken away.
        self._buried: dict[tuple[str, str, str], int] = {}

    def bindings(self) -> list[Key]:
        with self._lock:
            return [key for key, shelf in self._shelves.items() if shelf.binding or shelf.unreadable]

    def put(self, kind: Kind, manifest: Mapping[str, Any]) -> Key | None:
        """Take in what was seen; the binding it concerns, or None if it is not ours or nothing new."""
        key = key_of(kind, manifest)
        if key is None:
            return None
        meta = manifest["metadata"]
        version = int(meta["resourceVersion"])
        with self._lock, _skipping_what_cannot_be_read(kind, key, meta["name"]):
            if self._buried.get((kind.plural, meta["namespace"], meta["name"]), -1) >= version:
                return None
            shelf = self._shelves.setdefault(key, _Shelf())
            if kind is BINDING:
                return key if self._put_binding(shelf, manifest, version) else None
            if kind is GENERATION:
                return key if _newer(shelf.generations, read_generation(manifest), version) else None
            if kind is POD:
                return key if _newer(shelf.pods, read_pod(manifest), version) else None
            if shelf.service is not None and version <= int(shelf.service.meta.resource_version):
                return None
            shelf.service = read_service(manifest)
            return key
        return None

    def _put_binding(self, shelf: _Shelf, manifest: Mapping[str, Any], version: int) -> bool:
        if shelf.binding is not None and version <= int(shelf.binding.meta.resource_version):
            return False
        try:
            shelf.binding, shelf.unreadable = read_binding(manifest), None
        except ValidationError as error:
            shelf.binding, shelf.unreadable = None, (dict(manifest), _first_words(error))
        return True

    def drop(self, kind: Kind, manifest: Mapping[str, Any]) -> Key | None:
        """Take note that it is gone."""
        key = key_of(kind, manifest)
        if key is None:
            return None
        meta = manifest["metadata"]
        with self._lock:
            version = int(meta["resourceVersion"])
            self._bury(kind, meta["namespace"], meta["name"], version)
            # The answer to our own write may be here before the news of its predecessor's end.
            if self._version(key, kind, meta["name"]) > version:
                return None
            self._forget(key, kind, meta["name"])
        return key

    def absent(self, kind: Kind, key: Key, name: str) -> None:
        """A fresh read did not find it."""
        with self._lock:
            self._forget(key, kind, name)

    def _version(self, key: Key, kind: Kind, name: str) -> int:
        shelf = self._shelves.get(key, _Shelf())
        held: dict[str, SeenBinding | SeenGeneration | SeenPod | SeenService | None] = {
            BINDING.plural: shelf.binding,
            GENERATION.plural: shelf.generations.get(name),
            POD.plural: shelf.pods.get(name),
            SERVICE.plural: shelf.service,
        }
        seen = held.get(kind.plural)
        return int(seen.meta.resource_version) if seen is not None else -1

    def _bury(self, kind: Kind, namespace: str, name: str, version: int) -> None:
        where = (kind.plural, namespace, name)
        self._buried[where] = max(version, self._buried.get(where, -1))

    def _forget(self, key: Key, kind: Kind, name: str) -> None:
        shelf = self._shelves.get(key)
        if shelf is None:
            return
        if kind is BINDING:
            shelf.binding = shelf.unreadable = None
        elif kind is GENERATION:
            shelf.generations.pop(name, None)
            shelf.pods = {pod: seen for pod, seen in shelf.pods.items() if not (pod == name and seen.gone_at)}
        elif kind is POD:
            seen = shelf.pods.get(name)
            # Remembered as gone while its generation is there: its absence is news, and distrusted for a
            # while.
            if seen is not None and name in shelf.generations:
                shelf.pods[name] = replace(seen, gone_at=seen.gone_at or self._clock())
            else:
                shelf.pods.pop(name, None)
        elif kind is SERVICE:
            shelf.service = None
        if shelf.empty:
            del self._shelves[key]

    def replace_binding(
        self, kind: Kind, key: Key, manifests: Iterable[Mapping[str, Any]], version: str
    ) -> None:
        """Take in a listing of one binding's objects."""
        listed = list(manifests)
        names_found = {each["metadata"]["name"] for each in listed}
        for each in listed:
            self.put(kind, each)
        with self._lock:
            for owner, name, known in list(self._held(kind)):
                if owner == key and name not in names_found and known <= int(version):
                    self._forget(key, kind, name)

    def replace_all(
        self, kind: Kind, manifests: Iterable[Mapping[str, Any]], version: str, namespace: str | None
    ) -> set[Key]:
        """Take in a whole listing, of one namespace or of all: what it lacks and is not newer than it is
        gone.
        Returns what has changed."""
        listed = list(manifests)
        found = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in listed}
        moved = {key for each in listed if (key := self.put(kind, each)) is not None}
        with self._lock:
            for key, name, known in list(self._held(kind)):
                elsewhere = namespace is not None and key[0] != namespace
                if not elsewhere and (key[0], name) not in found and known <= int(version):
                    self._forget(key, kind, name)
                    moved.add(key)
            # Graves older than this listing have done their work: a later answer cannot be older than it.
            self._buried = {
                where: at
                for where, at in self._buried.items()
                if at > int(version) or where[0] != kind.plural or namespace not in (None, where[1])
            }
        return moved

    def _held(self, kind: Kind) -> Iterable[tuple[Key, str, int]]:
        for key, shelf in self._shelves.items():
            if kind is BINDING and shelf.binding is not None:
                yield key, key[1], int(shelf.binding.meta.resource_version)
            if kind is BINDING and shelf.unreadable is not None:
                yield key, key[1], int(shelf.unreadable[0]["metadata"]["resourceVersion"])
            if kind is GENERATION:
                for seen in shelf.generations.values():
                    yield key, seen.meta.name, int(seen.meta.resource_version)
            if kind is POD:
                for pod in shelf.pods.values():
                    if not pod.gone_at:
                        yield key, pod.meta.name, int(pod.meta.resource_version)
            if kind is SERVICE and shelf.service is not None:
                yield key, shelf.service.meta.name, int(shelf.service.meta.resource_version)

    def observe(self, key: Key) -> Observation | None:
        with self._lock:
            shelf = self._shelves.get(key)
            if shelf is None or shelf.binding is None:
                return None
            return Observation(
                shelf.binding,
                tuple(shelf.generations.values()),
                tuple(shelf.pods.values()),
                shelf.service,
                shelf.bridge,
            )

    def note_bridge(self, key: Key, *, there: bool) -> None:
        with self._lock:
            self._shelves.setdefault(key, _Shelf()).bridge = there

    def unreadable(self, key: Key) -> tuple[Manifest, str] | None:
        with self._lock:
            shelf = self._shelves.get(key)
            return shelf.unreadable if shelf else None

    def explain(self, key: Key, pod: SeenPod) -> None:
        """Keep what was found out about a pod's trouble until the pod changes."""
        with self._lock:
            shelf = self._shelves.get(key)
            if shelf is not None and shelf.pods.get(pod.meta.name, pod).meta == pod.meta:
                shelf.pods[pod.meta.name] = pod


@contextlib.contextmanager
def _skipping_what_cannot_be_read(kind: Kind, key: Key, name: str) -> Iterator[None]:
    """One object of a form that this version does not know must not keep the others from being seen."""
    try:
        yield
    except ValidationError as error:
        log.error("%s %s of %s/%s cannot be read: %s", kind.kind, name, *key, _first_words(error))


def _newer(shelf: dict[str, Any], seen: Any, version: int) -> bool:
    known = shelf.get(seen.meta.name)
    if known is not None and version <= int(known.meta.resource_version):
        return False
    shelf[seen.meta.name] = seen
    return True


def key_of(kind: Kind, manifest: Mapping[str, Any]) -> Key | None:
    """The binding an object belongs to; None for what the controller does not follow."""
    meta = manifest["metadata"]
    if kind is BINDING:
        return meta["namespace"], meta["name"]
    binding = (meta.get("labels") or {}).get(names.LABEL_BINDING)
    if not binding:
        return None
    if kind is SERVICE and meta["name"] != names.stable_service(binding):
        return None
    if kind is POD and component(manifest) != "driver":
        return None
    return meta["namespace"], binding


def _first_words(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}"
