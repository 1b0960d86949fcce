"""Which rows have which key: small numbers for keys, and an index from a key to its rows.

Called by `rows` and `joins`. The index is a few sorted runs of doubling size: adding a row is cheap, finding
a key's rows is a binary search in each run, and neither grows with how many rows the key has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


class KeyIds:
    """Gives each key a number: 0, 1, 2 … in order of appearance. No key is -1."""

    def __init__(self) -> None:
        self._ids: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, keys: pa.Array) -> Ints:
        if len(keys) == 0:
            return np.empty(0, dtype=np.int64)
        if len(keys) < 64:
            # For a handful of live rows the machinery below costs more than it saves.
            return np.fromiter((self._id(key) for key in keys.to_pylist()), dtype=np.int64, count=len(keys))
        encoded = keys.dictionary_encode()
        ids = np.fromiter(
            (self._id(key) for key in encoded.dictionary.to_pylist()),
            dtype=np.int64,
            count=len(encoded.dictionary),
        )
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        # Index -1 is the appended last element: no key.
        numbers: Ints = np.append(ids, -1)[codes]
        return numbers

    def _id(self, key: Any) -> int:
        return -1 if key is None else self._ids.setdefault(key, len(self._ids))


class KeyIndex:
    """From key numbers to row numbers."""

    def __init__(self) -> None:
        self._runs: list[tuple[Ints, Ints]] = []

    @property
    def nbytes(self) -> int:
        return sum(keys.nbytes + rows.nbytes for keys, rows in self._runs)

    def add(self, keys: Ints, rows: Ints) -> None:
        """Rows (ascending) with their keys; rows without a key are left out."""
        present = keys >= 0
        if not present.all():
            keys, rows = keys[present], rows[present]
        if len(keys) == 0:
            return
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], rows[order]))
        while len(self._runs) >= 2 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            (keys_a, rows_a), (keys_b, rows_b) = self._runs[-2:]
            keys, rows = np.concatenate((keys_a, keys_b)), np.concatenate((rows_a, rows_b))
            order = np.argsort(keys, kind="stable")
            self._runs[-2:] = [(keys[order], rows[order])]

    def find(self, keys: Ints) -> tuple[Ints, Ints]:
        """All (position in `keys`, row) pairs, by position, a key's rows in ascending order."""
        positions: list[Ints] = []
        found: list[Ints] = []
        # A copy of the list: a reader may look while the writer merges runs.
        for run_keys, run_rows in tuple(self._runs):
            start = np.searchsorted(run_keys, keys, side="left")
            count = np.searchsorted(run_keys, keys, side="right") - start
            total = int(count.sum())
            if total == 0:
                continue
            positions.append(np.repeat(np.arange(len(keys), dtype=np.int64), count))
            # For each match: start of its key in the run, plus its number within the key.
            within = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
            found.append(run_rows[np.repeat(start, count) + within])
        if not found:
            empty = np.empty(0, dtype=np.int64)
            return empty, empty
        position, row = np.concatenate(positions), np.concatenate(found)
        if len(found) > 1:
            order = np.lexsort((row, position))
            position, row = position[order], row[order]
        return position, row

    def count(self, keys: Ints) -> int:
        """How many rows `find` would give."""
        return sum(
            int((np.searchsorted(run, keys, side="right") - np.searchsorted(run, keys, side="left")).sum())
            for run, _ in self._runs
        )
