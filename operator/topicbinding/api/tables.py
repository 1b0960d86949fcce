"""The shape of the tables: columns, their types, and the key that joins them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from topicbinding.api.base import Model
from topicbinding.api.schema import list_map, rules


class ColumnType(StrEnum):
    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"


class Column(Model):
    """One column: a field of the JSON object and its type."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z][A-Za-z0-9_]*$",
        description="Field of the JSON object.",
    )
    type: ColumnType = Field(ColumnType.STRING, description="A value of another type becomes null, counted.")


class TableSchema(Model):
    """The columns of one topic, in the order people see them."""

    columns: tuple[Column, ...] = Field(
        min_length=1,
        max_length=64,
        json_schema_extra=list_map("name"),
        description="Columns in display order.",
    )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _columns(*pairs: tuple[str, ColumnType]) -> TableSchema:
    return TableSchema(columns=tuple(Column(name=name, type=kind) for name, kind in pairs))


# What people were promised from the beginning; see the default in the resource's reference.
DEFAULT_USERS = _columns(
    ("userId", ColumnType.STRING),
    ("name", ColumnType.STRING),
    ("email", ColumnType.STRING),
    ("age", ColumnType.LONG),
)
DEFAULT_ACCOUNTS = _columns(
    ("userId", ColumnType.STRING),
    ("accountType", ColumnType.STRING),
    ("balance", ColumnType.DOUBLE),
)


class Tables(Model):
    """Columns of both topics and the key that joins them."""

    model_config = rules(
        (
            "self.users.columns.exists(c, c.name == self.key) && "
            "self.accounts.columns.exists(c, c.name == self.key)",
            "the key must be a column of users and of accounts",
        ),
        (
            "self.users.columns.all(u, u.name == self.key || "
            "!self.accounts.columns.exists(a, a.name == u.name))",
            "apart from the key, users and accounts must not share a column name (both stand in final_ui)",
        ),
        (
            "self.users.columns.all(u, u.name != self.key || "
            "self.accounts.columns.all(a, a.name != self.key || a.type == u.type))",
            "the key must have the same type in users and in accounts",
        ),
    )

    key: str = Field("userId", min_length=1, max_length=63, description="Column that joins both topics.")
    users: TableSchema = Field(DEFAULT_USERS, description="Columns of the users topic.")
    accounts: TableSchema = Field(DEFAULT_ACCOUNTS, description="Columns of the accounts topic.")

    @property
    def final(self) -> TableSchema:
        """Columns of `final_ui`: the key, the users' others, the accounts' others."""
        key = tuple(column for column in self.users.columns if column.name == self.key)
        users = tuple(column for column in self.users.columns if column.name != self.key)
        accounts = tuple(column for column in self.accounts.columns if column.name != self.key)
        return TableSchema(columns=key + users + accounts)
