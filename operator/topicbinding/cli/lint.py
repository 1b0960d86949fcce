"""Says what is wrong with a binding or a control message before anybody applies or sends it. Pure."""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import ValidationError

from topicbinding.api import KafkaSpec, TopicBinding, names
from topicbinding.control.message import Refusal, understand
from topicbinding.kafka.settings import refusal


def lint(text: str) -> list[str]:
    """Findings, one per line; an empty list is a clean file. Manifests may hold several documents."""
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError:
        return _message(text)  # not YAML either: the control message's rules say why best
    if not any(isinstance(each, dict) and "kind" in each for each in documents):
        return _message(text)
    findings: list[str] = []
    for number, document in enumerate(documents, 1):
        where = f"document {number}" if len(documents) > 1 else "binding"
        findings += [f"{where}: {finding}" for finding in _document(document)]
    return findings


def _message(text: str) -> list[str]:
    said = understand(text.encode(errors="surrogatepass"))
    if isinstance(said, Refusal):
        return [f"control message: {said.why}"]
    return [f"control message: {warning}" for warning in said.warnings]


def _document(document: Any) -> list[str]:
    if not isinstance(document, dict) or document.get("kind") != names.BINDING_KIND:
        return []  # somebody else's object
    findings: list[str] = []
    if document.get("apiVersion") != names.API_VERSION:
        findings.append(f"apiVersion: {document.get('apiVersion')!r}, not {names.API_VERSION!r}")
    name = str((document.get("metadata") or {}).get("name", ""))
    if len(name) > names.MAX_BINDING_NAME:
        findings.append(f"metadata.name: {len(name)} characters, at most {names.MAX_BINDING_NAME}")
    try:
        binding = TopicBinding.read(document)
    except ValidationError as error:
        return findings + [
            f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()
        ]
    findings += _unknown(document.get("spec") or {}, binding.spec, "spec")
    findings += _kafka(binding.spec.kafka, "spec.kafka")
    if binding.spec.control is not None:
        if binding.spec.control.kafka is not None:
            findings += _kafka(binding.spec.control.kafka, "spec.control.kafka")
        if binding.spec.control.topic in (binding.spec.users_topic, binding.spec.accounts_topic):
            findings.append("spec.control.topic: is also a data topic")
    return findings


def _kafka(kafka: KafkaSpec, where: str) -> list[str]:
    findings = [
        f"{where}.properties: {name!r} is refused: {why}"
        for name in kafka.properties
        if (why := refusal(name)) is not None
    ]
    security = kafka.security
    if security.protocol.value.startswith("SASL") and (
        security.mechanism is None or security.secret_ref is None
    ):
        findings.append(f"{where}.security: {security.protocol.value} needs 'mechanism' and 'secretRef'")
    if (
        security.mechanism is not None
        and security.mechanism.value == "OAUTHBEARER"
        and security.oauth is None
    ):
        findings.append(f"{where}.security: OAUTHBEARER needs 'oauth' with its 'tokenEndpointUrl'")
    return findings


def _unknown(said: dict[str, Any], model: Any, where: str) -> list[str]:
    """Fields the server would silently drop: the commonest way to write something that does nothing."""
    known = {field.alias or name: name for name, field in type(model).model_fields.items()}
    findings = []
    for key, value in said.items():
        if key not in known:
            findings.append(f"{where}.{key}: no such field")
            continue
        inner = getattr(model, known[key])
        if isinstance(value, dict) and hasattr(type(inner), "model_fields"):
            findings += _unknown(value, inner, f"{where}.{key}")
    return findings
