"""Extra words for the generated CRD schema: validation rules (CEL) and list types, said beside the fields.

Used by the models; read by `crd.py`.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict


def validations(*rules: tuple[str, str]) -> dict[str, Any]:
    """CEL rules as (expression, the message a person reads when it is broken)."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}


def rules(*pairs: tuple[str, str]) -> ConfigDict:
    """Model configuration that puts CEL rules on the model's object."""
    return ConfigDict(json_schema_extra=validations(*pairs))


def list_map(*keys: str) -> dict[str, Any]:
    """A list whose entries are told apart by these keys: several writers can own their own entries."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
