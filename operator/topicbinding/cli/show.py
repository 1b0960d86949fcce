"""What people see in the terminal. Pure: objects in, text and exit codes out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any

from topicbinding.api import Generation, TopicBinding, TopicBindingStatus, names


class Health(IntEnum):
    """The exit code of `status`; scripts rely on the numbers."""

    SERVED = 0  # what is wished for is being served
    MOVING = 1  # on its way: a new generation is being built, or the first one
    STALLED = 2  # the newest wish failed, or nothing is served; a person is needed
    UNKNOWN = 3  # cannot tell


def health(binding: TopicBinding) -> Health:
    status = binding.status
    observed = status.observed_generation
    generation = binding.metadata.get("generation")
    if _is(status, "Stalled"):
        return Health.STALLED
    if observed is None or (generation is not None and observed < generation) or _is(status, "Progressing"):
        return Health.MOVING
    return Health.SERVED if _is(status, "Ready") else Health.STALLED


def status_text(binding: TopicBinding) -> str:
    spec, status = binding.spec, binding.status
    wished = f"users {spec.users_topic}, accounts {spec.accounts_topic}, {spec.join_type.value} join"
    served = (
        f"generation {status.active_generation}: users {status.users_topic}, "
        f"accounts {status.accounts_topic}, {status.join_type} join"
        if status.active_generation is not None
        else "nothing yet"
    )
    lines = [
        f"{binding.metadata.get('namespace', '?')}/{binding.metadata.get('name', '?')}: "
        f"{health(binding).name.lower()}",
        f"  wished    {wished}",
        f"  served    {served}",
        f"  applied   {_time(status.last_applied)}",
    ]
    if (binding.metadata.get("annotations") or {}).get(names.ANNOTATION_PAUSED) == "true":
        lines.append("  paused    reconciliation is paused: nothing follows until 'resume'")
    lines += [
        f"  {each.type:<17} {each.status:<7} {each.reason}: {each.message}".rstrip(": ")
        for each in status.conditions
    ]
    control = status.control
    if control is not None:
        counts = ", ".join(f"{count} {name}" for name, count in control.counts.model_dump().items())
        lines.append(f"  control   {control.topic} at {_offsets(control.position)}; {counts}")
        if control.last_verdict:
            lines.append(
                f"  last      {control.last_verdict}: {control.last_reason} [{control.last_message}]"
            )
    return "\n".join(lines)


def line_text(binding: TopicBinding) -> str:
    """One line per state, for `watch`."""
    status = binding.status
    verdict = status.control.last_verdict if status.control else None
    marks = " ".join(f"{each.type}={each.status}({each.reason})" for each in status.conditions)
    return (
        f"{health(binding).name.lower():<8} "
        f"gen {status.active_generation or '-'}/{status.latest_generation or '-'} "
        f"{status.users_topic or '-'} + {status.accounts_topic or '-'} {status.join_type or '-'} "
        f"applied {_time(status.last_applied)} {marks}" + (f" last message {verdict}" if verdict else "")
    )


def tree_text(
    binding: TopicBinding, generations: Sequence[Generation], pods: Sequence[dict[str, Any]]
) -> str:
    lines = [f"{binding.metadata.get('name', '?')}  {health(binding).name.lower()}"]
    branches: list[tuple[str, list[str]]] = []
    for generation in reversed(generations):
        numbered = str(generation.spec.number)
        children = [_pod(pod) for pod in pods if _label(pod, names.LABEL_GENERATION) == numbered]
        branches.append((_generation(generation, binding.status.active_generation), children))
    branches += [(_pod(pod), []) for pod in pods if _label(pod, names.LABEL_GENERATION) is None]
    for index, (text, children) in enumerate(branches):
        last = index == len(branches) - 1
        lines.append(f"{'└─' if last else '├─'} {text}")
        for number, child in enumerate(children):
            corner = "└─" if number == len(children) - 1 else "├─"
            lines.append(f"{'   ' if last else '│  '} {corner} {child}")
    return "\n".join(lines)


def _generation(generation: Generation, active: int | None) -> str:
    spec, status = generation.spec, generation.status
    source = spec.source
    what = (
        f"{source.users_topic} + {source.accounts_topic} {source.join_type.value}"
        if source
        else "a warm standby"
    )
    said = [f"generation {spec.number}", status.phase.value if status.phase else "Pending", what]
    if spec.number == active:
        said.append("ACTIVE")
    if status.progress is not None and status.phase is not None and status.phase.value == "Reading":
        said.append(f"{status.progress.percent} %")
    if status.rows is not None:
        said.append(f"{status.rows.final} rows")
    if spec.retire_at is not None:
        said.append(f"leaves {_time(spec.retire_at)}")
    if status.reason:
        said.append(status.reason)
    return "  ".join(said)


def _pod(pod: dict[str, Any]) -> str:
    component = _label(pod, names.LABEL_COMPONENT) or "pod"
    return f"{component} {pod['metadata']['name']}  {pod.get('status', {}).get('phase', '?')}"


def _label(item: dict[str, Any], name: str) -> str | None:
    value = (item["metadata"].get("labels") or {}).get(name)
    return None if value is None else str(value)


def _is(status: TopicBindingStatus, kind: str) -> bool:
    found = status.condition(kind)
    return found is not None and found.status == "True"


def _offsets(position: dict[str, int]) -> str:
    return ", ".join(f"{number}:{offset}" for number, offset in sorted(position.items())) or "its beginning"


def _time(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z") if moment else "-"
