"""The generated schemas: structural, described, and the ones that are committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topicbinding.api import crd

ROOT = Path(__file__).parents[3]
DEFINITIONS = [crd.binding_definition(), crd.generation_definition()]
FORBIDDEN = {"$ref", "anyOf", "allOf", "oneOf", "const", "title", "exclusiveMinimum", "exclusiveMaximum"}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from nodes(schema[word], f"{path}.{word}")


def schema_of(definition: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each["spec"]["names"]["kind"])
def test_committed_files_are_the_generated_ones(definition: dict[str, Any]) -> None:
    path = ROOT / "crds" / f"{definition['metadata']['name']}.yaml"
    assert path.read_text() == crd.render(definition), "run `make generate`"


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each["spec"]["names"]["kind"])
def test_every_node_is_structural(definition: dict[str, Any]) -> None:
    for path, node in nodes(schema_of(definition)):
        assert "type" in node, path
        assert not FORBIDDEN & node.keys(), path


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each["spec"]["names"]["kind"])
def test_every_field_of_spec_and_status_is_described(definition: dict[str, Any]) -> None:
    for part in ("spec", "status"):
        for path, node in nodes(schema_of(definition)["properties"][part], part):
            if path.endswith((".items", ".additionalProperties")):
                continue
            assert node.get("description"), path


def test_printer_columns_are_the_promised_ones() -> None:
    columns = [
        [column["name"] for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]]
        for definition in DEFINITIONS
    ]
    assert columns[0] == [
        "Users", "Accounts", "Join", "Active", "Latest", "Ready", "Reason", "LastApplied", "Age",
    ]  # fmt: skip
    promised = ["Binding", "Users", "Accounts", "Join", "Phase", "Lag", "Rows", "RetireAt", "Age"]
    assert [name for name in columns[1] if name in promised] == promised


def test_our_category_is_neither_all_nor_the_name_of_a_resource() -> None:
    words = {"all"}
    for definition in DEFINITIONS:
        names = definition["spec"]["names"]
        words |= {names["plural"], names["singular"], *names["shortNames"]}
    for definition in DEFINITIONS:
        assert definition["spec"]["names"]["categories"] == ["topicbinding-all"]
        assert not words & set(definition["spec"]["names"]["categories"])
