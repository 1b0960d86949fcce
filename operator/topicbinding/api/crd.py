"""Generates the CustomResourceDefinitions from the models: `python -m topicbinding.api.crd DIRECTORY`.

The API server takes a stricter dialect than JSON Schema (structural, no references, no null types): the
functions here translate pydantic's output into it. `make generate` writes, `make lint` fails on drift.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from topicbinding.api import names
from topicbinding.api.binding import TopicBindingSpec, TopicBindingStatus
from topicbinding.api.generation import GenerationSpec, GenerationStatus

Schema = dict[str, Any]

_KEPT = frozenset(
    {
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
    }
)


def _resolve(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """The schema with references, nulls and constants written out; what stands beside a reference wins."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        schema = target | {key: value for key, value in schema.items() if key != "$ref"}
        return _resolve(schema, definitions)
    if "anyOf" in schema:
        # pydantic writes an optional field as "this or null"; for the server a field is optional by absence.
        (real,) = [each for each in schema["anyOf"] if each.get("type") != "null"]
        beside = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return _resolve(real | beside, definitions)
    if "allOf" in schema:
        (only,) = schema["allOf"]
        return _resolve(only | {key: value for key, value in schema.items() if key != "allOf"}, definitions)
    if "const" in schema:
        schema = {key: value for key, value in schema.items() if key != "const"} | {"enum": [schema["const"]]}
    return schema


def structural(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """One node of the structural schema, with all that is beneath it."""
    schema = _resolve(schema, definitions)
    node: Schema = {
        key: value for key, value in schema.items() if key in _KEPT or key.startswith("x-kubernetes-")
    }
    if "description" in node:
        node["description"] = " ".join(str(node["description"]).split())
    if "properties" in schema:
        node["properties"] = {
            name: structural(each, definitions) for name, each in schema["properties"].items()
        }
    if "items" in schema:
        node["items"] = structural(schema["items"], definitions)
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        node["additionalProperties"] = structural(values, definitions)
    if node.get("type") == "integer":
        node["format"] = "int64"
    _default_of_parts(node)
    return node


def _default_of_parts(node: Schema) -> None:
    """A nested default is `{}`: the parts' own defaults then apply, so each is said in one place only.

    Where a rule (CEL) looks into the part, or a field of it is required, the server wants it whole.
    """
    for part in node.get("properties", {}).values():
        if part.get("type") == "object" and "default" in part and "properties" in part:
            whole = _has_rules(part) or "required" in part
            part["default"] = _without_nulls(part["default"]) if whole else {}


def _has_rules(node: Schema) -> bool:
    inner = [*node.get("properties", {}).values(), *(node[w] for w in ("items",) if w in node)]
    return "x-kubernetes-validations" in node or any(_has_rules(each) for each in inner)


def _without(node: Schema, word: str) -> Schema:
    kept = {key: value for key, value in node.items() if key != word}
    for inner in ("items", "additionalProperties"):
        if inner in kept:
            kept[inner] = _without(kept[inner], word)
    if "properties" in kept:
        kept["properties"] = {name: _without(part, word) for name, part in kept["properties"].items()}
    return kept


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _root(spec: type[BaseModel], status: type[BaseModel], metadata: Schema) -> Schema:
    def part(model: type[BaseModel]) -> Schema:
        whole = model.model_json_schema(by_alias=True, mode="validation")
        return structural(whole, whole.get("$defs", {}))

    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": part(spec),
            # The status is written by our own programs: rules would only cost the server time.
            "status": _without(part(status), "x-kubernetes-validations"),
        },
    } | metadata


def _column(name: str, path: str, kind: str = "string", priority: int = 0, description: str = "") -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    if priority:
        column["priority"] = priority
    if description:
        column["description"] = description
    return column


def _definition(
    kind: str, plural: str, short: str, description: str, columns: list[Schema], schema: Schema
) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                # Not "all": a kubectl delete all must not take people's tables away. And not "topicbinding":
                # kubectl takes a category before a singular name, and `get topicbinding NAME` would fail.
                "categories": ["topicbinding-all"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": {"description": description} | schema},
                }
            ],
        },
    }


def binding_definition() -> Schema:
    ready = ".status.conditions[?(@.type=='Ready')]"
    name_rule = {
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {names.MAX_BINDING_NAME}",
                "message": f"the name may have at most {names.MAX_BINDING_NAME} characters: "
                "generations, pods and Services are named after it",
            },
            {
                "rule": "!self.metadata.name.contains('.')",
                "message": "the name cannot have dots: Services are named after it",
            },
        ]
    }
    return _definition(
        names.BINDING_KIND,
        names.BINDINGS,
        "tb",
        "A live join of two Kafka topics under stable names.",
        [
            _column("Users", ".status.usersTopic", description="Users topic being served"),
            _column("Accounts", ".status.accountsTopic", description="Accounts topic being served"),
            _column("Join", ".status.joinType", description="Join being served"),
            _column("Active", ".status.activeGeneration", "integer"),
            _column("Latest", ".status.latestGeneration", "integer"),
            _column("Ready", f"{ready}.status"),
            _column("Reason", f"{ready}.reason"),
            _column("LastApplied", ".status.lastApplied"),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ],
        _root(TopicBindingSpec, TopicBindingStatus, name_rule),
    )


def generation_definition() -> Schema:
    return _definition(
        names.GENERATION_KIND,
        names.GENERATIONS,
        "gen",
        "One generation of a TopicBinding: one choice, one driver pod. Written by the operator.",
        [
            _column("Binding", ".spec.binding"),
            _column("Users", ".spec.source.usersTopic"),
            _column("Accounts", ".spec.source.accountsTopic"),
            _column("Join", ".spec.source.joinType"),
            _column("Phase", ".status.phase"),
            _column("Done%", ".status.progress.percent", "integer", 0, "Of the backlog"),
            _column("ETA", ".status.progress.etaSeconds", "integer", 0, "Seconds until caught up"),
            _column("Lag", ".status.lag", "integer"),
            _column("Rows", ".status.rows.final", "integer"),
            _column("RetireAt", ".spec.retireAt"),
            _column("Reason", ".status.reason", "string", 1),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ],
        _root(GenerationSpec, GenerationStatus, {}),
    )


def render(definition: Schema) -> str:
    head = (
        "# Generated from operator/topicbinding/api by `make generate`: change the models, not this file.\n"
    )
    return head + str(yaml.safe_dump(definition, sort_keys=False, allow_unicode=True, width=110))


def main(directory: str) -> None:
    for definition in (binding_definition(), generation_definition()):
        path = Path(directory) / f"{definition['metadata']['name']}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(definition))


if __name__ == "__main__":
    main(sys.argv[1])
