"""A small API server in memory, strict where the controller relies on it: names, preconditions, owners,
watches.

Used by the simulation. It checks the promises at every single write, whoever makes it, on what is really
there.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from topicbinding.controller.observed import Manifest
from topicbinding.controller.ports import KINDS, Kind, StaleError

Where = tuple[str, str, str]


class CrashError(Exception):
    """The controller dies here."""


@dataclass
class ApiServer:
    """Objects, versions, and a log of what happened for whoever watches."""

    now: datetime = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    objects: dict[Where, Manifest] = field(default_factory=dict)
    log: list[tuple[str, Kind, Manifest]] = field(default_factory=list)
    version: int = 100
    watchers: list[Callable[[str, Kind, Manifest | None, Manifest | None], None]] = field(
        default_factory=list
    )

    def clock(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def stamp(self) -> str:
        return self.now.replace(microsecond=0).isoformat().replace("+00:00", "Z")

    def write(self, kind: Kind, manifest: Manifest) -> Manifest:
        where = (kind.plural, manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        before = self.objects.get(where)
        if before is not None and _same(before, manifest):
            return copy.deepcopy(before)
        self.version += 1
        manifest["metadata"]["resourceVersion"] = str(self.version)
        if before is None:
            manifest["metadata"].setdefault("uid", f"uid-{self.version}")
            manifest["metadata"].setdefault("creationTimestamp", self.stamp())
            manifest["metadata"]["generation"] = 1
        elif before.get("spec") != manifest.get("spec"):
            manifest["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
        self.objects[where] = manifest
        self.log.append(("put", kind, copy.deepcopy(manifest)))
        for watcher in self.watchers:
            watcher("put", kind, before, manifest)
        return copy.deepcopy(manifest)

    def erase(self, kind: Kind, namespace: str, name: str) -> None:
        gone = self.objects.pop((kind.plural, namespace, name))
        self.version += 1
        gone = copy.deepcopy(gone)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.log.append(("drop", kind, gone))
        for watcher in self.watchers:
            watcher("drop", kind, gone, None)

    def all(self, kind: Kind) -> list[Manifest]:
        return [each for where, each in sorted(self.objects.items()) if where[0] == kind.plural]

    def collect_garbage(self) -> bool:
        """What owner references promise: dependents of what is gone go, and a foreground deletion waits for
        them."""
        alive = {each["metadata"]["uid"] for each in self.objects.values()}
        waiting = {
            each["metadata"]["uid"]
            for each in self.objects.values()
            if "foregroundDeletion" in each["metadata"].get("finalizers", ())
        }
        for where, each in list(self.objects.items()):
            kind = next(kind for kind in KINDS.values() if kind.plural == where[0])
            owners = {owner["uid"] for owner in each["metadata"].get("ownerReferences", ())}
            orphaned = owners and not owners & alive
            if (orphaned or owners & waiting) and not each["metadata"].get("deletionTimestamp"):
                self.delete(kind, where[1], where[2], foreground=bool(owners & waiting))
                return True
        for where, each in list(self.objects.items()):
            if each["metadata"]["uid"] in waiting:
                kind = next(kind for kind in KINDS.values() if kind.plural == where[0])
                held = any(
                    owner["uid"] == each["metadata"]["uid"] and owner.get("blockOwnerDeletion")
                    for other in self.objects.values()
                    for owner in other["metadata"].get("ownerReferences", ())
                )
                if not held:
                    self.erase(kind, where[1], where[2])
                    return True
        return False

    def delete(
        self, kind: Kind, namespace: str, name: str, *, grace: int | None = None, foreground: bool = False
    ) -> None:
        each = copy.deepcopy(self.objects[kind.plural, namespace, name])
        running = kind.plural == "pods" and each.get("status", {}).get("phase") == "Running" and grace != 0
        if foreground and kind.plural != "pods":
            each["metadata"]["finalizers"] = ["foregroundDeletion"]
        if running or (foreground and kind.plural != "pods"):
            each["metadata"]["deletionTimestamp"] = self.stamp()
            self.write(kind, each)
        else:
            self.erase(kind, namespace, name)


@dataclass
class Client:
    """The Kubernetes port of one controller. `before` runs before every call and may crash it or move the
    world."""

    server: ApiServer
    before: Callable[[str], None] = lambda call: None
    after: Callable[[str], None] = lambda call: None
    calls: int = 0

    def _call(self, what: str) -> None:
        self.calls += 1
        self.before(what)

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        self._call("get")
        return copy.deepcopy(self.server.objects.get((kind.plural, namespace, name)))

    def find(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str]
    ) -> tuple[list[Manifest], str]:
        self._call("list")
        found = [
            copy.deepcopy(each)
            for each in self.server.all(kind)
            if namespace in (None, each["metadata"]["namespace"])
            and labels.items() <= each["metadata"].get("labels", {}).items()
        ]
        return found, str(self.server.version)

    def events_about(self, namespace: str, uid: str) -> list[Manifest]:
        self._call("list")
        events = [each for each in self.server.objects.values() if each.get("kind") == "Event"]
        return [copy.deepcopy(each) for each in events if each["involvedObject"]["uid"] == uid]

    def create(self, manifest: Manifest) -> Manifest:
        kind = KINDS[manifest["kind"]]
        self._call(f"create {kind.kind}")
        where = (kind.plural, manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        if where in self.server.objects:
            raise StaleError(f"{where} is taken")
        made = self.server.write(kind, _plain(manifest))
        self.after(f"create {kind.kind}")
        return made

    def apply(self, manifest: Manifest) -> Manifest:
        kind = KINDS[manifest["kind"]]
        self._call(f"apply {kind.kind}")
        where = (kind.plural, manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        present = self.server.objects.get(where)
        made = self.server.write(kind, _merged(copy.deepcopy(present or {}), _plain(manifest)))
        self.after(f"apply {kind.kind}")
        return made

    def apply_status(self, manifest: Manifest) -> Manifest:
        kind = KINDS[manifest["kind"]]
        self._call("status")
        where = (kind.plural, manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        present = copy.deepcopy(self.server.objects.get(where))
        meta = manifest["metadata"]
        if present is None or any(
            present["metadata"][key] != meta[key] for key in ("uid", "resourceVersion") if key in meta
        ):
            raise StaleError("another object")
        status = _plain(manifest["status"])
        others = [
            each
            for each in present.get("status", {}).get("conditions", ())
            if each["type"] not in {mine["type"] for mine in status["conditions"]}
        ]
        control = present.get("status", {}).get("control")
        present["status"] = status | {"conditions": status["conditions"] + others}
        if control is not None:
            present["status"]["control"] = control
        made = self.server.write(kind, present)
        self.after("status")
        return made

    def patch(self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any]) -> Manifest:
        what = "flip" if kind.plural == "services" else f"patch {kind.kind}"
        self._call(what)
        present = self.server.objects.get((kind.plural, namespace, name))
        if present is None:
            raise StaleError("gone")
        for precondition in ("resourceVersion", "uid"):
            wanted = body.get("metadata", {}).get(precondition)
            if wanted is not None and wanted != present["metadata"][precondition]:
                raise StaleError(f"{name}: {precondition}")
        made = self.server.write(kind, _merged(copy.deepcopy(present), _plain(body)))
        self.after(what)
        return made

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        foreground: bool = False,
    ) -> None:
        self._call(f"delete {kind.kind}")
        present = self.server.objects.get((kind.plural, namespace, name))
        if present is None:
            return
        meta = present["metadata"]
        if uid not in (None, meta["uid"]) or resource_version not in (None, meta["resourceVersion"]):
            raise StaleError(f"{name} has changed")
        if not meta.get("deletionTimestamp") or grace_seconds == 0:
            self.server.delete(kind, namespace, name, grace=grace_seconds, foreground=foreground)
        self.after(f"delete {kind.kind}")


def _plain(value: Any) -> Any:
    """Through JSON, as it would travel: nothing that only Python knows survives."""
    return json.loads(json.dumps(value))


def _merged(into: Any, patch: Any) -> Any:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            into[key] = _merged(into.get(key) if isinstance(into.get(key), dict) else {}, value)
        elif key not in ("resourceVersion",):
            into[key] = value
    return into


def _same(one: Manifest, other: Manifest) -> bool:
    def rest(each: Manifest) -> Manifest:
        meta = {key: value for key, value in each["metadata"].items() if key != "resourceVersion"}
        return each | {"metadata": meta}

    return rest(one) == rest(other)
