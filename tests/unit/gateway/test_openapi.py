"""The OpenAPI document names every route of the application and no other."""

from __future__ import annotations

from pathlib import Path

import yaml

from topicbinding.gateway.access import OpenAccess
from topicbinding.gateway.app import make_app
from topicbinding.gateway.builtin import SCHEMAS
from topicbinding.gateway.directory import Directory
from topicbinding.gateway.hub import TABLES
from topicbinding.gateway.settings import Settings
from topicbinding.tables.formats import CONTENT_TYPES, Format
from topicbinding.tables.query import PARAMETERS

ROOT = Path(__file__).parents[3]
DOCUMENT = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())


def test_every_route_is_documented() -> None:
    app = make_app(Settings(), Directory(), OpenAccess())
    routes = {
        route.resource.canonical
        for route in app.router.routes()
        if route.resource is not None and route.resource.canonical not in ("/", "/page")
    }
    assert set(DOCUMENT["paths"]) == routes


def test_tables_parameters_and_formats_are_those_of_the_code() -> None:
    parameters = DOCUMENT["components"]["parameters"]
    assert parameters["table"]["schema"]["enum"] == list(TABLES)
    table = DOCUMENT["paths"]["/v1/bindings/{namespace}/{name}/tables/{table}"]["get"]
    named = {each.get("name") or each["$ref"].rsplit("/", 1)[1] for each in table["parameters"]}
    assert set(PARAMETERS) <= named
    assert parameters["format"]["schema"]["enum"] == [each.value for each in Format]
    assert set(table["responses"]["200"]["content"]) == set(CONTENT_TYPES.values())


def test_the_tables_of_the_cluster_have_the_promised_columns() -> None:
    assert SCHEMAS["orchestrator_status"].names[1:] == [
        "usersTopic",
        "accountsTopic",
        "joinType",
        "lastApplied",
    ]
    assert SCHEMAS["orchestrator_logs"].names[1:] == ["ts", "level", "msg"]
