"""Builds the one patch that carries spec and position together. Pure; golden in the tests.

Called by the session. A merge patch names only what changes, so a field set by hand in between stays, and the
server's field ownership tells who set what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topicbinding.api import Choice, names
from topicbinding.bridge.position import Position


def binding_patch(seen: Mapping[str, Any], choice: Choice | None, position: Position) -> dict[str, Any]:
    """`choice` is None when nothing is to be built: the position alone moves on."""
    patch: dict[str, Any] = {
        "metadata": {
            # With it the server refuses the patch if anybody wrote since we looked.
            "resourceVersion": seen["metadata"]["resourceVersion"],
            "annotations": {names.ANNOTATION_POSITION: position.annotation()},
        }
    }
    if choice is not None:
        wanted = choice.wire()
        present = {name: value for name, value in seen["spec"].items() if name in _choice_fields()}
        patch["spec"] = difference(present, wanted)
    return patch


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `old` into `new`: null removes, lists are replaced whole."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif isinstance(value, dict) and isinstance(old[name], dict):
            inner = difference(old[name], value)
            if inner:
                patch[name] = inner
        elif value != old[name]:
            patch[name] = value
    return patch


def _choice_fields() -> frozenset[str]:
    return frozenset(field.alias or name for name, field in Choice.model_fields.items())
