"""`final_ui` in normal form: which users row goes with which accounts row, as numbers of rows.

Called by `tablelog`. Nothing is copied from the two sides until somebody reads: a users row costs no memory
here, a pair of an inner join costs two numbers, and a newest account that changes for a key with a million
users rows is one number that changes.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from topicbinding_job import wire
from topicbinding_job.log.columns import Numbers
from topicbinding_job.log.keys import Ints, KeyIds, KeyIndex
from topicbinding_job.log.rows import SideRows

NONE = -1


class Join(Protocol):
    """How the rows of `final_ui` come about."""

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def rows_after(self, keys: Ints, side: int) -> int:
        """How many rows there will be once rows of a side with these keys are added: asked before, as it may
        be far too many to make."""

    def users_added(self, first: int, keys: Ints) -> None:
        """Users rows from number `first` on have these keys."""

    def accounts_added(self, first: int, keys: Ints) -> None:
        """Accounts rows from number `first` on have these keys."""

    def newest_is(self, keys: Ints, accounts: Ints, side: SideRows) -> Ints:
        """Spark says these rows of `side` are the keys' newest accounts (each key once); returns the keys
        for which that is new."""

    def rows_of_keys(self, keys: Ints) -> Ints:
        """The rows of `final_ui` that show these keys' newest account."""

    def sides(self, rows: Ints) -> tuple[Ints, Ints]:
        """For each row of `final_ui` its users row, and its accounts row or -1."""


class LeftJoin:
    """One row for each users row, with the newest account of its key."""

    def __init__(self, users: SideRows, keys: KeyIds) -> None:
        self._users = users
        self._keys = keys
        self._newest = Numbers(np.int64, fill=NONE)
        self._index = KeyIndex()

    @property
    def rows(self) -> int:
        return self._users.rows

    @property
    def nbytes(self) -> int:
        return self._newest.nbytes + self._index.nbytes

    def rows_after(self, keys: Ints, side: int) -> int:
        return self._users.rows

    def users_added(self, first: int, keys: Ints) -> None:
        self._newest.resize(len(self._keys))
        self._index.add(keys, np.arange(first, first + len(keys), dtype=np.int64))

    def accounts_added(self, first: int, keys: Ints) -> None:
        self._newest.resize(len(self._keys))

    def newest_is(self, keys: Ints, accounts: Ints, side: SideRows) -> Ints:
        self._newest.resize(len(self._keys))
        newest = self._newest.view
        present = newest[keys]
        changed = (present == NONE) | side.newer(accounts, present)
        newest[keys[changed]] = accounts[changed]
        taken: Ints = keys[changed]
        return taken

    def rows_of_keys(self, keys: Ints) -> Ints:
        return self._index.find(keys)[1]

    def sides(self, rows: Ints) -> tuple[Ints, Ints]:
        keys = self._users.key_ids.view[rows]
        # Element -1 (no key) reads the last element and is then overwritten.
        newest = self._newest.view
        accounts = newest[keys] if len(newest) else np.full(len(rows), NONE, dtype=np.int64)
        return rows, np.where(keys < 0, NONE, accounts)


class InnerJoin:
    """One row for each pair of a users row and an accounts row with the same key, in the order pairs come
    about."""

    def __init__(self) -> None:
        self._users = KeyIndex()
        self._accounts = KeyIndex()
        self._pair_users = Numbers(np.int32)
        self._pair_accounts = Numbers(np.int32)

    @property
    def rows(self) -> int:
        return len(self._pair_accounts)

    @property
    def nbytes(self) -> int:
        return sum(
            each.nbytes for each in (self._users, self._accounts, self._pair_users, self._pair_accounts)
        )

    def users_added(self, first: int, keys: Ints) -> None:
        position, accounts = self._accounts.find(keys)
        self._users.add(keys, np.arange(first, first + len(keys), dtype=np.int64))
        self._add(position + first, accounts)

    def accounts_added(self, first: int, keys: Ints) -> None:
        position, users = self._users.find(keys)
        self._accounts.add(keys, np.arange(first, first + len(keys), dtype=np.int64))
        self._add(users, position + first)

    def rows_after(self, keys: Ints, side: int) -> int:
        return self.rows + (self._accounts if side == wire.USERS else self._users).count(keys)

    def newest_is(self, keys: Ints, accounts: Ints, side: SideRows) -> Ints:
        return np.empty(0, dtype=np.int64)

    def rows_of_keys(self, keys: Ints) -> Ints:
        return np.empty(0, dtype=np.int64)

    def sides(self, rows: Ints) -> tuple[Ints, Ints]:
        return (
            self._pair_users.view[rows].astype(np.int64),
            self._pair_accounts.view[rows].astype(np.int64),
        )

    def _add(self, users: Ints, accounts: Ints) -> None:
        self._pair_users.append(users)
        self._pair_accounts.append(accounts)


def side_by_side(users: pa.Table, accounts: pa.Table, key: str, wanted: tuple[Ints, Ints]) -> pa.Table:
    """The rows of both sides that belong together: key, users' others, accounts' others."""
    user_rows, account_rows = wanted
    left = users.take(pa.array(user_rows))
    right = accounts.drop_columns([key])
    picked = right.take(pa.array(account_rows, mask=account_rows < 0))
    columns = {key: left.column(key)}
    columns |= {name: left.column(name) for name in left.schema.names if name != key}
    columns |= {name: picked.column(name) for name in picked.schema.names}
    return pa.table(columns)
