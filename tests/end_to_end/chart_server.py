"""A local HTTP server that answers exactly as badly as a test asks for.

Owns sockets and threads, and what was asked of it: every request with its time, headers, path and body, and every
connection. It speaks bytes, not HTTP: a script may send anything, at any speed, or nothing. Must not know who asks.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from types import TracebackType
from typing import BinaryIO, Self

PATIENCE_SECONDS = 3.0
"""After this long a script gives up, so that a caller who never hangs up fails its test and does not hang it."""
ENDLESS_BYTES = 48 * 1024 * 1024
"""What an endless body amounts to, if nobody hangs up before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    at: float
    """Monotonic time."""
    connection: int
    """Number of the connection it came on, from 1."""
    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes


class Line:
    """The server's end of one connection, as a script sees it: it may send, dawdle, reset or close."""

    def __init__(self, sock: socket.socket, stopping: Event) -> None:
        self._sock = sock
        self._stopping = stopping
        self.is_open = True
        self.sent = 0
        self.was_left = Event()
        """The other side hung up while there was more to send."""

    def send(self, data: bytes) -> bool:
        """Send the bytes; return whether the other side is still there."""
        try:
            self._sock.sendall(data)
        except OSError:
            self.was_left.set()
            self.close()
            return False
        self.sent += len(data)
        return True

    def drip(self, data: bytes, pause: float = 0.05) -> None:
        """Send a byte at a time."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        for number in range(len(data)):
            if time.monotonic() > give_up_at or not self.send(data[number : number + 1]):
                return
            if self._stopping.wait(pause):
                return

    def pour(self, part: bytes) -> None:
        """Send the same bytes over and over."""
        while self.sent < ENDLESS_BYTES and not self._stopping.is_set() and self.send(part):
            pass

    def hold(self) -> None:
        """Say nothing, until the other side hangs up."""
        self._sock.settimeout(PATIENCE_SECONDS)
        with suppress(TimeoutError):
            with suppress(ConnectionError):
                self._sock.recv(1)
            self.was_left.set()
        self.close()

    def reset(self) -> None:
        """Break the connection off (RST instead of FIN)."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close(is_orderly=False)

    def close(self, *, is_orderly: bool = True) -> None:
        """Hang up."""
        self.is_open = False
        if is_orderly:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


Script = Callable[[Line], object]
"""What to do once a request has arrived; the connection stays open unless the script closes it."""


@dataclass
class ChartServer:
    """Answers the first request with the first script, and so on; the last one repeats."""

    scripts: list[Script] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    """Every connection that was made, in order."""

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=32)
        self._stopping = Event()
        self._lock = Lock()
        self._threads = [Thread(target=self._accept, name="chart-server")]

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    @property
    def origin(self) -> str:
        host, port = self.address
        return f"http://{host}:{port}"

    @property
    def connections(self) -> int:
        """Return how many connections were made."""
        return len(self.lines)

    def asked_on(self, line: Line) -> Asked:
        """Return the last request of a connection."""
        return next(one for one in reversed(self.asked) if self.lines[one.connection - 1] is line)

    def will(self, *scripts: Script) -> Self:
        """Do this, request by request."""
        self.scripts = list(scripts)
        return self

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stopping.set()
        with suppress(OSError):
            socket.create_connection(self.address).close()  # wakes the listener
        self._threads[0].join()
        self._listener.close()
        for line in self.lines:
            line.close()
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            if self._stopping.is_set():
                sock.close()
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = Line(sock, self._stopping)
            self.lines.append(line)
            thread = Thread(target=self._serve, args=(line, sock, len(self.lines)), name="chart-server-line")
            self._threads.append(thread)
            thread.start()

    def _serve(self, line: Line, sock: socket.socket, number: int) -> None:
        with suppress(OSError, ValueError), sock.makefile("rb") as reader:
            while line.is_open and (asked := _read_request(reader, number)):
                with self._lock:
                    script = self.scripts[min(len(self.asked), len(self.scripts) - 1)]
                    self.asked.append(asked)
                script(line)
        line.close()


def _read_request(reader: BinaryIO, connection: int) -> Asked | None:
    first = reader.readline()
    if not first:
        return None
    at = time.monotonic()
    method, path, _ = first.decode("latin-1").split(" ", 2)
    headers = {}
    while (header := reader.readline().decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", "0")))
    return Asked(at=at, connection=connection, method=method, path=path, headers=headers, body=body)


def answer(status: int, body: bytes, *headers: str) -> bytes:
    """Return a whole, well-formed answer."""
    return head(status, f"Content-Length: {len(body)}", *headers) + body


def head(status: int, *headers: str) -> bytes:
    """Return status line and headers, with the empty line after them."""
    return "\r\n".join([f"HTTP/1.1 {status} Scripted", *headers, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body; without data, the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def says(*parts: bytes) -> Script:
    """Return the script that sends these bytes and keeps the connection open."""
    return lambda line: [line.send(part) for part in parts]


def says_and_closes(*parts: bytes) -> Script:
    """Return the script that sends these bytes and hangs up."""

    def script(line: Line) -> None:
        says(*parts)(line)
        line.close()

    return script


def says_and_resets(*parts: bytes) -> Script:
    """Return the script that sends these bytes and breaks the connection off."""

    def script(line: Line) -> None:
        says(*parts)(line)
        if parts:
            time.sleep(0.05)  # a reset overtakes bytes that were not read yet
        line.reset()

    return script


def says_and_holds(*parts: bytes) -> Script:
    """Return the script that sends these bytes and then nothing, without hanging up."""

    def script(line: Line) -> None:
        says(*parts)(line)
        line.hold()

    return script


def says_and_drips(start: bytes, rest: bytes) -> Script:
    """Return the script that sends the start at once and the rest byte by byte, then hangs up."""

    def script(line: Line) -> None:
        line.send(start)
        line.drip(rest)
        line.close()

    return script


def says_endlessly(start: bytes, part: bytes) -> Script:
    """Return the script that sends the start once and the part over and over, then hangs up."""

    def script(line: Line) -> None:
        line.send(start)
        line.pour(part)
        line.close()

    return script
