"""REST: the same rows in four formats, questions and their mistakes, and what is refused."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from typing import Any

import aiohttp
import pyarrow as pa
import pytest

from tests.support.gateway_world import World, table_url
from topicbinding.client import Gateway, GatewayError

ROWS: list[dict[str, Any]] = [
    {"userId": "u1", "name": "Ann", "email": "", "age": 30},
    {"userId": "u2", "name": '<script>alert("x")</script>', "email": None, "age": None},
    {"userId": None, "name": 'Eve, "the" one', "email": "e@example.org", "age": 41},
]


async def world_with_rows(world: World) -> str:
    binding = world.binding()
    binding.generation(1).tables["users_ui"].put(ROWS)
    binding.flip(1)
    return table_url(world.url, "users_ui")


async def test_four_formats_say_the_same() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        url = await world_with_rows(world)

        async def body(**request: Any) -> bytes:
            async with http.get(url, **request) as answer:
                assert answer.status == 200
                assert answer.headers["X-TopicBinding-Generation"] == "1"
                assert answer.headers["X-TopicBinding-State"] == "live"
                return await answer.read()

        answer = json.loads(await body())
        assert answer["rows"] == ROWS
        assert {key: answer[key] for key in ("generation", "seq", "state", "total")} == {
            "generation": 1,
            "seq": 1,
            "state": "live",
            "total": 3,
        }
        assert answer["columns"][3] == {"name": "age", "type": "long"}
        ndjson = await body(headers={"Accept": "application/x-ndjson"})
        assert [json.loads(line) for line in ndjson.splitlines()] == ROWS
        arrow = await body(params={"format": "arrow"})
        assert pa.ipc.open_stream(arrow).read_all().to_pylist() == ROWS
        text = (await body(headers={"Accept": "text/csv"})).decode()
        assert [row["name"] for row in csv.DictReader(io.StringIO(text))] == [row["name"] for row in ROWS]
        assert text.splitlines()[1] == '"u1","Ann","",30'
        assert text.splitlines()[2].endswith(",,"), "null is not an empty text"


async def test_questions() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        await world_with_rows(world)

        async def ask(**parameters: str | int) -> list[dict[str, Any]]:
            answer = await gateway.query("shop", "orders", "users_ui", **parameters)
            found: list[dict[str, Any]] = answer.to_pylist()
            return found

        assert [row["age"] for row in await ask(order="-age")] == [41, 30, None]
        assert await ask(columns="age,userId", where="age is not null", offset=1) == [
            {"age": 41, "userId": None}
        ]
        assert [row["userId"] for row in await ask(where='name ~ "SCRIPT"')] == ["u2"]
        assert len(await ask(limit=1)) == 1
        assert await ask(generation=1, limit=0) == []


@pytest.mark.parametrize(
    ("path", "status", "complaint"),
    [
        ("users_ui?where=agee+>+1", 400, "did you mean 'age'"),
        ("users_ui?wher=1", 400, "did you mean 'where'"),
        ("users_ui?limit=1&limit=2", 400, "twice"),
        ("users_ui?limit=99999999", 400, "at most"),
        ("users_ui?format=xml", 400, "unknown format"),
        ("users_ui?generation=7", 404, "living: 1"),
        ("users_ui?generation=x", 400, "must be a number"),
        ("orchestrator_logs?generation=1", 400, "belongs to the binding"),
        ("nothing_ui", 404, "there are users_ui"),
        ("users_ui/stream?format=xml", 400, "arrow or json"),
        ("users_ui/stream?fromat=json", 400, "unknown parameter"),
    ],
)
async def test_mistakes_get_a_clear_answer(path: str, status: int, complaint: str) -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        await world_with_rows(world)
        async with http.get(table_url(world.url, path)) as answer:
            assert answer.status == status
            assert complaint in (await answer.json())["error"]


async def test_what_cannot_be_accepted_and_what_does_not_exist() -> None:
    async with World(first_rows_seconds=0.5) as world, aiohttp.ClientSession() as http:
        url = await world_with_rows(world)
        async with http.get(url, headers={"Accept": "image/png"}) as answer:
            assert answer.status == 406
        async with http.get(table_url(world.url, "users_ui", binding="nobody")) as answer:
            assert answer.status == 404
        async with http.post(url) as answer:
            assert answer.status == 405
            assert answer.headers["Allow"] == "GET,HEAD"
        async with http.get(world.url + "/v1/bindings/shop") as answer:
            assert answer.status == 404
        world.binding("empty")
        async with http.get(table_url(world.url, "users_ui", binding="empty")) as answer:
            assert answer.status == 503
            assert "nothing is being served" in (await answer.json())["error"]


async def test_a_download_has_a_name() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        url = await world_with_rows(world)
        async with http.get(url, params={"format": "csv", "download": "1"}) as answer:
            assert answer.headers["Content-Disposition"] == 'attachment; filename="orders-users_ui-g1.csv"'


async def test_every_answer_carries_the_security_headers() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        url = await world_with_rows(world)
        for path in (
            url,
            world.url + "/",
            world.url + "/v1/bindings",
            world.url + "/nothing",
            url + "/stream",
        ):
            async with http.get(path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "script-src 'self' 'wasm-unsafe-eval'" in policy
                assert "default-src 'none'" in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Server"] == "topicbinding"


async def test_pages_of_other_origins_are_refused_unless_allowed() -> None:
    async with World(allowed_origins="https://app.example") as world, aiohttp.ClientSession() as http:
        url = await world_with_rows(world)
        for origin, status in (
            ("https://evil.example", 403),
            ("null", 403),
            ("https://app.example", 200),
            (world.url, 200),
        ):
            async with http.get(url, headers={"Origin": origin}) as answer:
                assert answer.status == status, origin
                allowed = answer.headers.get("Access-Control-Allow-Origin")
                assert allowed == (origin if origin == "https://app.example" else None)
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect(url + "/stream", headers={"Origin": "https://evil.example"})
        assert caught.value.status == 403
        async with http.options(url, headers={"Origin": "https://app.example"}) as answer:
            assert answer.status == 204
            assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]


async def test_open_access_answers_on_this_machine_only() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        url = await world_with_rows(world)
        async with http.get(url, headers={"Host": "rebound.example"}) as answer:
            assert answer.status == 403
            assert "access to token" in (await answer.json())["error"]
        async with http.get(world.url + "/healthz", headers={"Host": "10.0.0.7:8080"}) as answer:
            assert answer.status == 200, "the kubelet asks by address"


async def test_too_many_requests_are_slowed_down() -> None:
    async with World(requests_per_second=5, request_burst=10) as world, aiohttp.ClientSession() as http:
        world.binding()
        answers = await asyncio.gather(*(http.get(world.url + "/v1/bindings") for _ in range(30)))
        statuses = [answer.status for answer in answers]
        for answer in answers:
            answer.release()
        assert statuses.count(200) < 20
        refused = next(answer for answer in answers if answer.status == 429)
        assert int(refused.headers["Retry-After"]) >= 1


async def test_the_python_client_says_what_is_wrong() -> None:
    async with World() as world, Gateway(world.url) as gateway:
        with pytest.raises(GatewayError, match="no binding shop/nobody"):
            await gateway.get_table("shop", "nobody", "users_ui")
        await world_with_rows(world)
        with pytest.raises(GatewayError, match="did you mean 'age'"):
            await gateway.query("shop", "orders", "users_ui", columns="agee")


async def test_no_path_leaves_the_page_directory() -> None:
    async with World() as world, aiohttp.ClientSession() as http:
        for path in ("/page/../../gateway/main.py", "/page/%2e%2e/%2e%2e/main.py", "/page//etc/passwd"):
            async with http.get(world.url + path, allow_redirects=False) as answer:
                assert answer.status in (403, 404)
