"""A small chart server on this machine that notes who asks when, and answers as it is told.

Owns the noting. Its answers are any function of what was asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

from tests.builders import a_png


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and when it came."""

    at: float
    key: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server says."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None


Answer = Callable[[Asked], Reply]


def a_picture(asked: Asked) -> Reply:
    return Reply(200, a_png(padding=json.dumps(asked.body).encode()), "image/png")


def slowly(seconds: float, answer: Answer = a_picture) -> Answer:
    def wait(asked: Asked) -> Reply:
        time.sleep(seconds)
        return answer(asked)

    return wait


def when_told(told: Event, answer: Answer = a_picture) -> Answer:
    """Answer nobody before the event: whoever asks is at work until then, however slow the machine is."""

    def wait(asked: Asked) -> Reply:
        told.wait(60)
        return answer(asked)

    return wait


class PacingServer(ThreadingHTTPServer):
    """Answers POSTs, each in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, answer: Answer) -> None:
        """Listen on a free port of this machine."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[Asked] = []
        self.lock = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def arrivals(self) -> dict[str, list[float]]:
        """Return the moments of all requests by key, in order."""
        with self.lock:
            found: dict[str, list[float]] = {}
            for one in sorted(self.asked, key=lambda asked: asked.at):
                found.setdefault(one.key, []).append(one.at)
            return found

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that are killed leave broken pipes behind."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: PacingServer

    def do_POST(self) -> None:
        at = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = Asked(at, self.headers["x-api-key"], dict(self.headers.items()), body)
        with self.server.lock:
            self.server.asked.append(asked)
        reply = self.server.answer(asked)
        self.send_response(reply.status)
        for name, value in (reply.headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        """Say nothing."""


@contextmanager
def serving(answer: Answer = a_picture) -> Iterator[PacingServer]:
    """Serve until the end of the block."""
    server = PacingServer(answer)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
