"""The demo's story: the same for the same seed, and shaped as the tables are declared."""

from __future__ import annotations

from itertools import islice

from topicbinding.demo.people import Row, story


def told(seed: int, version: str, count: int = 2000) -> list[Row]:
    return list(islice(story(seed, version), count))


def test_the_same_seed_tells_the_same_story() -> None:
    assert told(7, "v1") == told(7, "v1")
    assert told(7, "v1") != told(8, "v1")


def test_versions_can_be_told_apart_by_eye() -> None:
    assert all("@v2.example" in row.value["email"] for row in told(7, "v2") if row.table == "users")


def test_rows_have_the_declared_columns_and_types() -> None:
    columns = {
        "users": {"userId": str, "name": str, "email": str, "age": int},
        "accounts": {"userId": str, "accountType": str, "balance": float},
    }
    for row in told(7, "v1"):
        assert {name: type(value) for name, value in row.value.items()} == columns[row.table]
        assert row.key == row.value["userId"]


def test_it_begins_with_everybody_and_then_changes() -> None:
    rows = told(7, "v1")
    beginning, rest = rows[:80], rows[80:]

    assert [row.table for row in beginning] == ["users"] * 40 + ["accounts"] * 40
    assert {row.key for row in beginning[:40]} == {row.key for row in beginning[40:]}
    assert {row.table for row in rest} == {"users", "accounts"}
    newcomers = {row.key for row in rest} - {row.key for row in beginning}
    assert newcomers, "somebody new must appear"


def test_nobody_has_an_account_before_being_a_user() -> None:
    users: set[str] = set()
    for row in told(7, "v1", 5000):
        if row.table == "users":
            users.add(row.key)
        else:
            assert row.key in users
