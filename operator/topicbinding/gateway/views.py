"""Bindings and generations as the API shows them: what people need to see, and nothing that could be secret.

Pure; called by the routes. Kafka settings and Spark configuration never leave through here.
"""

from __future__ import annotations

from typing import Any

from topicbinding.api import Generation, Phase, TopicBinding, names
from topicbinding.gateway.directory import Entry, Key, describe_build, failure_of


def summary(key: Key, entry: Entry) -> dict[str, Any]:
    """One line of the list of bindings."""
    binding = entry.binding
    if binding is None:
        raise ValueError("a binding that does not exist has no summary")
    status, spec = binding.status, binding.spec
    state, reason = _state(binding, entry)
    return {
        "namespace": key.namespace,
        "name": key.name,
        "state": state,
        "reason": reason,
        "usersTopic": status.users_topic or spec.users_topic,
        "accountsTopic": status.accounts_topic or spec.accounts_topic,
        "joinType": status.join_type or spec.join_type.value,
        "lastApplied": _iso(status.last_applied),
        "activeGeneration": status.active_generation,
        "latestGeneration": status.latest_generation,
        "building": next(
            (
                {"generation": each["number"], "percent": each["percent"], "etaSeconds": each["etaSeconds"]}
                for each in (generation(one, entry.active) for one in entry.ordered())
                if each["role"] == "building"
            ),
            None,
        ),
    }


def detail(key: Key, entry: Entry) -> dict[str, Any]:
    """Everything the page shows about one binding, but its rows."""
    binding = entry.binding
    if binding is None:
        raise ValueError("a binding that does not exist has no detail")
    spec, status = binding.spec, binding.status
    control = None
    if spec.control is not None:
        reported = status.control
        control = {
            "topic": spec.control.topic,
            "lastMessageAt": _iso(reported.last_message_at) if reported else None,
            "lastVerdict": reported.last_verdict if reported else None,
            "lastReason": reported.last_reason if reported else None,
            "counts": reported.counts.wire() if reported else None,
        }
    return {
        **summary(key, entry),
        "wish": {
            "usersTopic": spec.users_topic,
            "accountsTopic": spec.accounts_topic,
            "joinType": spec.join_type.value,
            "startingOffsets": spec.starting_offsets,
            "state": spec.state.value,
        },
        "tables": tables(entry),
        "lingerSeconds": spec.linger.seconds,
        "standby": spec.standby,
        "paused": (binding.metadata.get("annotations") or {}).get(names.ANNOTATION_PAUSED) == "true",
        "control": control,
        "conditions": [each.wire() for each in status.conditions],
        "generations": [generation(each, entry.active) for each in entry.ordered()],
    }


def tables(entry: Entry) -> dict[str, list[dict[str, str]]]:
    """The columns of the data tables of the active generation, in display order."""
    binding = entry.binding
    declared = binding.spec.tables if binding else None
    active = entry.generations.get(entry.active) if entry.active is not None else None
    if active is not None and active.spec.source is not None:
        declared = active.spec.source.tables
    if declared is None:
        return {}
    shapes = {
        names.USERS_TABLE: declared.users,
        names.ACCOUNTS_TABLE: declared.accounts,
        names.FINAL_TABLE: declared.final,
    }
    return {
        name: [{"name": column.name, "type": column.type.value} for column in shape.columns]
        for name, shape in shapes.items()
    }


def generation(one: Generation, active: int | None) -> dict[str, Any]:
    spec, status, metadata = one.spec, one.status, one.metadata
    given_up = (metadata.get("annotations") or {}).get(names.ANNOTATION_GIVEN_UP)
    source = spec.source
    return {
        "number": spec.number,
        "name": metadata.get("name"),
        "role": _role(one, active, given_up),
        "phase": status.phase.value if status.phase else None,
        "reason": given_up or status.reason,
        "message": status.message,
        "usersTopic": source.users_topic if source else None,
        "accountsTopic": source.accounts_topic if source else None,
        "joinType": source.join_type.value if source else None,
        "startingOffsets": source.starting_offsets if source else None,
        "percent": status.progress.percent if status.progress else None,
        "etaSeconds": status.progress.eta_seconds if status.progress else None,
        "lag": status.lag,
        "rows": status.rows.wire() if status.rows else None,
        "nullKeys": status.null_keys.wire() if status.null_keys else None,
        "badRows": status.bad_rows.wire() if status.bad_rows else None,
        "badSamples": [each.wire() for each in status.bad_samples],
        "mode": status.mode,
        "driverVersion": status.driver_version,
        "createdAt": metadata.get("creationTimestamp"),
        "caughtUpAt": _iso(status.caught_up_at),
        "updatedAt": _iso(status.updated_at),
        "retireAt": _iso(spec.retire_at),
    }


def _role(one: Generation, active: int | None, given_up: str | None) -> str:
    if one.metadata.get("deletionTimestamp"):
        return "leaving"
    if one.spec.number == active:
        return "active"
    if given_up or one.status.phase is Phase.FAILED:
        return "failed"
    if one.spec.source is None:
        return "standby"
    return "lingering" if one.spec.retire_at is not None else "building"


def _state(binding: TopicBinding, entry: Entry) -> tuple[str, str]:
    """The binding as a whole. `reason` also tells, for one that is live, why its newest wish was not
    fulfilled."""
    stalled = failure_of(entry, None)
    if entry.active is not None:
        broken = failure_of(entry, entry.active)
        if broken:
            return "failed", broken
        ready = binding.status.condition("Ready")
        if ready is not None and ready.status != "True":
            return "stale", ready.message or ready.reason
        return "live", stalled
    return ("failed", stalled) if stalled else ("swapping", describe_build(entry))


def _iso(value: Any) -> str | None:
    if value is None:
        return None
    text: str = value.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
