"""Writes docs/reference.md from the generated schemas, so that it cannot disagree with the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topicbinding.api import crd

_HEAD = """<!-- Generated from operator/topicbinding/api by `make generate`: change the models. -->
# API reference

Group `topicbinding.dev`, version `v1alpha1`. `kubectl explain tb.spec` shows the same in the terminal.
"""


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " \\| ".join(f"`{word}`" for word in schema["enum"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map to {_type(schema['additionalProperties'])}"
    return str(schema.get("format") if schema["type"] == "string" and "format" in schema else schema["type"])


def _notes(schema: dict[str, Any], required: bool) -> str:
    notes = ["required"] if required else []
    default = schema.get("default")
    if default is not None and not isinstance(default, (dict, list)):
        notes.append(f"default `{str(default).lower() if isinstance(default, bool) else default}`")
    bounds = {
        "minimum": "at least",
        "maximum": "at most",
        "maxLength": "characters at most",
        "maxItems": "entries at most",
    }
    notes += [f"{words} {schema[word]}" for word, words in bounds.items() if word in schema]
    return ", ".join(notes)


def _rows(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        required = name in schema.get("required", [])
        yield f"| `{here}` | {_type(part)} | {_notes(part, required)} | {part.get('description', '')} |"
        inner = part["items"] if part["type"] == "array" else part
        yield from _rows(inner, here + ("[]" if part["type"] == "array" else ""))


def _rules(schema: dict[str, Any], path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        yield f"- `{path}`: {rule['message']}"
    for name, part in schema.get("properties", {}).items():
        inner = part["items"] if part["type"] == "array" else part
        yield from _rules(inner, f"{path}.{name}" if path else name)


def render() -> str:
    pages = [_HEAD]
    for definition in (crd.binding_definition(), crd.generation_definition()):
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        kind, short = definition["spec"]["names"]["kind"], definition["spec"]["names"]["shortNames"][0]
        pages.append(f"## {kind} (`{short}`)\n\n{schema['description']}\n")
        for part in ("spec", "status"):
            table = ["| field | type | notes | meaning |", "|---|---|---|---|"]
            table += _rows(schema["properties"][part], "")
            pages.append(f"### {kind}.{part}\n\n" + "\n".join(table) + "\n")
        rules = list(dict.fromkeys(_rules(schema, "")))
        pages.append(
            "Refused by the API server:\n\n" + "\n".join(rules).replace("- ``:", "- the object:") + "\n"
        )
    return "\n".join(pages)
