"""HTTP connections that end at a moment, however slowly the other side sends.

`requests` bounds the silence between bytes, not the whole exchange, headers included. Here whoever waits for the answer shuts
the socket down at the deadline. Owns only that; must not know what is asked or answered.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, local
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

_current = local()


class Deadline:
    """One exchange, and whether its time ran out."""

    def __init__(self) -> None:
        """Begin with time left and no connection."""
        self.has_passed = False
        self._lines: list[socket.socket] = []
        self._lock = Lock()

    def watch(self, sock: socket.socket) -> None:
        """Shut this socket down when the time has run out, by a handle that nobody else closes."""
        line = socket.socket(fileno=os.dup(sock.fileno()))
        with self._lock:
            self._lines.append(line)
            if self.has_passed:
                _shut(line)

    def expire(self) -> None:
        """Shut all lines down: whoever reads from them gets an end or an error."""
        with self._lock:
            self.has_passed = True
            for line in self._lines:
                _shut(line)

    def close(self) -> None:
        """Let go of the lines."""
        with self._lock:
            for line in self._lines:
                line.close()
            self._lines = []


@contextmanager
def bounded_by(limit: Deadline) -> Iterator[None]:
    """Let everything that this thread sends and receives inside the block end with the deadline."""
    _current.deadline = limit
    try:
        yield
    finally:
        _current.deadline = None
        limit.close()


def _shut(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


class _Interruptible:
    """Shows its socket to the deadline as soon as it has one: before the TLS handshake, and when it is used again."""

    sock: socket.socket | None

    def _new_conn(self) -> socket.socket:
        sock: socket.socket = super()._new_conn()  # type: ignore[misc]
        _watch(sock)
        return sock

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:
            _watch(self.sock)
        super().request(*args, **kwargs)  # type: ignore[misc]


def _watch(sock: socket.socket) -> None:
    limit: Deadline | None = getattr(_current, "deadline", None)
    if limit is not None:
        limit.watch(sock)


class _InterruptibleHttp(_Interruptible, HTTPConnection):
    pass


class _InterruptibleHttps(_Interruptible, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _InterruptibleHttp


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _InterruptibleHttps


class InterruptibleAdapter(HTTPAdapter):
    """The transport adapter to mount on a requests session."""

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **kwargs: Any) -> None:  # noqa: FBT001, FBT002
        """Use connections that can be interrupted."""
        self.poolmanager = PoolManager(num_pools=connections, maxsize=maxsize, block=block, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
