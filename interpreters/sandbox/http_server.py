"""A small HTTP server in threads of this process.

Owns sockets: reading a request whole, writing the reply, closing everything at the end. Must not know what is
asked for: that is a function from `Request` to `Reply`.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

HOST = "127.0.0.1"
_END_SECONDS = 5.0
_WITHOUT_BODY = frozenset({204, 304})
_DRIP_BYTES = 16
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Request:
    """One request, read to its end."""

    method: str
    target: str
    """The path and query as they were sent."""
    headers: Message
    body: bytes

    @cached_property
    def path(self) -> str:
        """Return the path, still quoted."""
        return urlsplit(self.target).path

    @cached_property
    def query(self) -> Mapping[str, str]:
        """Return the parameters of the query, the last one of a name."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def origin(self) -> str:
        """Return the scheme and host by which the client knows this server."""
        return f"http://{self.headers.get('host', HOST)}"

    def header(self, name: str) -> str | None:
        """Return a header's value."""
        return self.headers.get(name)


@dataclass(frozen=True)
class Reply:
    """What is said in return."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drip_seconds: float = 0.0
    """A pause after every few bytes of the body; 0 sends it at once."""
    cut_at: int | None = None
    """How many bytes of the body are sent before the connection is closed; None sends all."""


@dataclass(frozen=True)
class Dropped:
    """No reply: the connection ends."""

    reset: bool = False
    """Whether it ends with a reset instead of a close."""


Answering = Callable[[Request], Reply | Dropped]


class HttpServer:
    """Answers requests on one port of this machine, each connection in a thread of its own."""

    def __init__(self, answer: Answering, port: int = 0, host: str = HOST) -> None:
        """Take the port at once, or any free one for 0; answer nothing before `start`."""
        self._stopping = Event()
        self._server = _Server((host, port), answer, self._stopping)
        self._thread: Thread | None = None

    @property
    def port(self) -> int:
        """Return the port."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """Return the origin to send requests to."""
        return f"http://{self._server.server_address[0]!s}:{self.port}"

    def start(self) -> Self:
        """Begin to answer."""
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End all connections and free the port; a second call does nothing."""
        self._stopping.set()
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self._server.end_connections()

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than the server runs."""
        if seconds > 0:
            self._stopping.wait(seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], answer: Answering, stopping: Event) -> None:
        self.answer = answer
        self.stopping = stopping
        self._connections: set[socket.socket] = set()
        self._ended = Condition()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._ended:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._ended:
            self._connections.discard(request)
            self._ended.notify_all()

    def end_connections(self) -> None:
        """Wake the threads that wait for a next request, and wait for all of them."""
        with self._ended:
            for connection in self._connections:
                _shut(connection)
            self._ended.wait_for(lambda: not self._connections, _END_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that went away; print anything else."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def answer_any(self) -> None:
        self.wfile.flush()
        reply = self.server.answer(Request(self.command, self.path, self.headers, self._read_body()))
        if isinstance(reply, Dropped):
            self._drop(reply)
        else:
            self._send(reply)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer_any  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return b"".join(self._chunks())
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.content_type is not None:
            self.send_header("Content-Type", reply.content_type)
        if reply.status not in _WITHOUT_BODY:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self._send_body(reply)

    def _send_body(self, reply: Reply) -> None:
        is_empty = self.command == "HEAD" or reply.status in _WITHOUT_BODY
        body = b"" if is_empty else reply.body[: reply.cut_at]
        if reply.drip_seconds > 0:
            self._drip(body, reply.drip_seconds)
        else:
            self.wfile.write(body)
        if reply.cut_at is not None:
            self._drop(Dropped())

    def _drip(self, body: bytes, seconds: float) -> None:
        for start in range(0, len(body), _DRIP_BYTES):
            self.wfile.write(body[start : start + _DRIP_BYTES])
            self.wfile.flush()
            if self.server.stopping.wait(seconds):
                self.close_connection = True
                return

    def _drop(self, dropped: Dropped) -> None:
        self.close_connection = True
        self.wfile.flush()
        if dropped.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.connection.close()
        else:
            _shut(self.connection)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
