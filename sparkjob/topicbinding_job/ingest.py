"""Receives the rows of real-time mode from the JVM's writers (`RowSender`) and hands them to the table log.

`driver` opens it before it changes to real time. One thread per connection reads frames, one thread gives
what has gathered meanwhile to the log: under load many frames become one change.
"""

from __future__ import annotations

import hmac
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from topicbinding_job.sink import new_token

logger = logging.getLogger(__name__)

MAX_FRAME: Final = 512 * 1024 * 1024
HELLO_SECONDS: Final = 5.0
_TAKEN: Final = b"\x01"


class FrameBroken(ValueError):  # noqa: N818 - an answer to a sender, not a fault of ours
    """A frame that does not fit the layout."""


@dataclass(slots=True)
class _Confirmation:
    """Says that everything before it has been taken."""

    done: threading.Event = field(default_factory=threading.Event)


class Ingest:
    """A listening socket for the writers of one query."""

    def __init__(self, host: str, port: int, schema: pa.Schema, take: Callable[[pa.Table], None]) -> None:
        self._schema = schema
        self._take = take
        self.token = new_token()
        self.failure: BaseException | None = None
        self._queue: list[pa.RecordBatch | _Confirmation] = []
        self._ready = threading.Condition()
        self._closed = False
        self._listener = socket.create_server((host, port), backlog=128)
        self._connections: set[socket.socket] = set()
        self._writers = 0
        self.host, self.port = self._listener.getsockname()[:2]
        for work, name in ((self._accept, "ingest-accept"), (self._hand_over, "ingest-log")):
            threading.Thread(target=work, name=name, daemon=True).start()

    @property
    def writers(self) -> int:
        """Writers that are connected now: real time is running if there are any."""
        return self._writers

    def close(self) -> None:
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        self._listener.close()
        for connection in tuple(self._connections):
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="ingest", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._connections.add(connection)
        counted = 0
        try:
            with connection:
                connection.settimeout(HELLO_SECONDS)
                hello = bytes(_exactly(connection, len(self.token)))
                if not hmac.compare_digest(hello, self.token.encode()):
                    logger.warning("a connection without the right token was refused")
                    return
                connection.settimeout(None)
                counted = 1
                self._writers += counted
                while True:
                    size = int.from_bytes(_exactly(connection, 4), "big")
                    if size == 0:
                        confirmation = _Confirmation()
                        self._put(confirmation)
                        confirmation.done.wait()
                        if self.failure is None and not self._closed:
                            connection.sendall(_TAKEN)
                        return
                    if size > MAX_FRAME:
                        raise FrameBroken(f"a frame of {size} bytes")
                    self._put(decode(_exactly(connection, size), self._schema))
        except (ConnectionError, EOFError, TimeoutError, OSError):
            # A task that was stopped: what it had not confirmed is sent again.
            return
        except FrameBroken as error:
            logger.error("rows were refused: %s", error)
        finally:
            self._writers -= counted
            self._connections.discard(connection)

    def _put(self, item: pa.RecordBatch | _Confirmation) -> None:
        with self._ready:
            self._queue.append(item)
            self._ready.notify()

    def _hand_over(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closed:
                    self._ready.wait()
                items, self._queue = self._queue, []
                closed = self._closed
            batches = [item for item in items if isinstance(item, pa.RecordBatch)]
            try:
                if batches and self.failure is None:
                    self._take(pa.Table.from_batches(batches, self._schema))
            except Exception as error:
                logger.exception("the table log refused rows")
                self.failure = error
            for item in items:
                if isinstance(item, _Confirmation):
                    item.done.set()
            if closed:
                return


def decode(frame: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """A frame of `ColumnBuffer` as an Arrow batch over the same memory."""
    buffer = pa.py_buffer(frame)
    at = 0

    def number() -> int:
        nonlocal at
        if at + 8 > buffer.size:
            raise FrameBroken("it ends too early")
        value = int(np.frombuffer(buffer, dtype="<i8", count=1, offset=at)[0])
        at += 8
        return value

    def block() -> pa.Buffer:
        nonlocal at
        size = number()
        if size < 0 or at + size > buffer.size:
            raise FrameBroken("a column ends too early")
        part = buffer.slice(at, size)
        at += (size + 7) & ~7
        return part

    rows = number()
    arrays = []
    for column in schema:
        count = 3 if pa.types.is_string(column.type) else 2
        arrays.append(pa.Array.from_buffers(column.type, rows, [block() for _ in range(count)]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _exactly(connection: socket.socket, size: int) -> memoryview:
    data = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        count = connection.recv_into(data[filled:])
        if count == 0:
            raise EOFError
        filled += count
    return data
