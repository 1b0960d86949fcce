"""Building blocks of the table log: numbers that grow, and columns in chunks that never change once
published.

Called by the other modules of the log. Writers replace references, they never change what a reader may hold:
an array that outgrows its memory is copied, a chunk that is merged stays as it was for whoever still reads
it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

CHUNK_ROWS: Final = 65_536
"""Rows of a full chunk. Small chunks are merged up to this size, so that a live table of single rows does
not become a list of a million tiny arrays, and full ones are never copied again."""


class Numbers:
    """A growing array of numbers. `view` is what has been written so far."""

    def __init__(self, dtype: npt.DTypeLike, fill: int = 0) -> None:
        self._fill = fill
        self._data: npt.NDArray[Any] = np.full(1024, fill, dtype=dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def view(self) -> npt.NDArray[Any]:
        return self._data[: self._size]

    @property
    def nbytes(self) -> int:
        return int(self._data.nbytes)

    def append(self, values: npt.NDArray[Any]) -> None:
        start = self._size
        self.resize(start + len(values))
        self._data[start : self._size] = values

    def resize(self, size: int) -> None:
        """Grow to `size`; new elements hold the fill value."""
        if size > len(self._data):
            grown = np.full(max(size, 2 * len(self._data)), self._fill, dtype=self._data.dtype)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        self._size = max(self._size, size)


class Chunks:
    """Rows in immutable Arrow chunks, in the order they were appended."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._chunks: tuple[pa.RecordBatch, ...] = ()
        self._nbytes = 0
        self.rows = 0

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows at the end; neighbours of similar size are merged, so each row is copied a few times at
        most."""
        if batch.num_rows == 0:
            return
        chunks = [*self._chunks, batch]
        self._nbytes += batch.nbytes
        while (
            len(chunks) >= 2
            and chunks[-2].num_rows < 2 * chunks[-1].num_rows
            and chunks[-2].num_rows + chunks[-1].num_rows <= CHUNK_ROWS
        ):
            merged = pa.Table.from_batches(chunks[-2:], self.schema).combine_chunks().to_batches()[0]
            chunks[-2:] = [merged]
        self._chunks = tuple(chunks)
        self.rows += batch.num_rows

    def table(self) -> pa.Table:
        """Everything published so far, without copying."""
        return pa.Table.from_batches(self._chunks, self.schema)
