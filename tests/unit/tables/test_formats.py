"""The four formats: null stays null, text stays text, and each can be read back."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from topicbinding.tables import formats
from topicbinding.tables.formats import Format, FormatError, choose, write
from topicbinding.tables.schema import UnknownTypeError, arrow_schema, arrow_type, describe, type_word

TABLE = pa.table(
    {
        "name": ['say "hi", <b>', "", None],
        "age": [1, None, 2**60],
        "balance": [0.1, float("nan"), None],
        "at": pa.array(
            [datetime(2026, 1, 2, 3, 4, 5, 678000, UTC), None, None], pa.timestamp("ms", tz="UTC")
        ),
        "ok": [True, False, None],
    }
)
ROWS = [
    {"name": 'say "hi", <b>', "age": 1, "balance": 0.1, "at": "2026-01-02T03:04:05.678Z", "ok": True},
    {"name": "", "age": None, "balance": None, "at": None, "ok": False},
    {"name": None, "age": 2**60, "balance": None, "at": None, "ok": None},
]


def whole(form: Format, table: pa.Table = TABLE, **meta: object) -> bytes:
    return b"".join(write(table, form, meta))


def test_json_has_meta_columns_and_rows() -> None:
    answer = json.loads(whole(Format.JSON, generation=7, seq=1234, state="live"))
    assert answer["generation"] == 7
    assert answer["state"] == "live"
    assert answer["columns"][0] == {"name": "name", "type": "string"}
    assert [column["type"] for column in answer["columns"]] == [
        "string",
        "long",
        "double",
        "timestamp",
        "boolean",
    ]
    assert answer["rows"] == ROWS


def test_ndjson_is_one_object_a_line() -> None:
    assert [json.loads(line) for line in whole(Format.NDJSON).splitlines()] == ROWS


def test_csv_tells_null_from_empty_text() -> None:
    text = whole(Format.CSV).decode()
    lines = text.splitlines()
    assert lines[0] == '"name","age","balance","at","ok"'
    assert lines[1] == '"say ""hi"", <b>",1,0.1,"2026-01-02T03:04:05.678Z",true'
    assert lines[2] == '"",,nan,,false'
    assert lines[3].startswith(f",{2**60},,,")
    assert next(iter(csv.DictReader(io.StringIO(text))))["name"] == 'say "hi", <b>'


def test_arrow_can_be_read_back() -> None:
    assert pa.ipc.open_stream(whole(Format.ARROW)).read_all().schema == TABLE.schema


@pytest.mark.parametrize("form", list(Format))
def test_empty_tables(form: Format) -> None:
    data = whole(form, TABLE.slice(0, 0))
    if form is Format.JSON:
        assert json.loads(data)["rows"] == []
    elif form is Format.CSV:
        assert data == b'"name","age","balance","at","ok"\n'
    elif form is Format.NDJSON:
        assert data == b""
    else:
        assert pa.ipc.open_stream(data).read_all().num_rows == 0


@pytest.mark.parametrize("form", [Format.JSON, Format.NDJSON, Format.CSV])
def test_many_chunks_make_one_answer(form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole(form)
    monkeypatch.setattr(formats, "CHUNK_ROWS", 1)
    assert whole(form) == expected
    assert len(list(write(TABLE, form))) >= 3


@pytest.mark.parametrize(
    ("parameter", "accept", "form"),
    [
        (None, None, Format.JSON),
        ("", "*/*", Format.JSON),
        ("CSV", "application/json", Format.CSV),
        (None, "text/csv", Format.CSV),
        (None, "application/x-ndjson;q=0.5, text/csv;q=0.9", Format.CSV),
        (None, "application/json;q=0, application/vnd.apache.arrow.stream", Format.ARROW),
        (None, "text/html,application/xhtml+xml,*/*;q=0.8", Format.JSON),
        (None, "image/png, */*;q=0.1", Format.JSON),
        (None, "text/csv;q=high", None),
        (None, "image/png", None),
        ("xml", None, None),
    ],
)
def test_choice_of_format(parameter: str | None, accept: str | None, form: Format | None) -> None:
    if form is None:
        with pytest.raises(FormatError):
            choose(parameter, accept)
    else:
        assert choose(parameter, accept) is form


def test_types_go_both_ways() -> None:
    for word in ("string", "long", "double", "boolean", "timestamp"):
        assert type_word(arrow_type(word)) == word
    with pytest.raises(UnknownTypeError, match="one of string"):
        arrow_type("varchar")


def test_the_row_identity_is_first_and_hidden() -> None:
    schema = arrow_schema([("userId", "string"), ("age", "long")])
    assert schema.names == ["_row", "userId", "age"]
    assert describe(schema) == [{"name": "userId", "type": "string"}, {"name": "age", "type": "long"}]
