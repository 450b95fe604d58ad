"""The cloud of the benchmarks: the sandbox's Firestore and Cloud Storage, and a chart server, all as slow as they are told.

Owns starting them in a process of their own, so that what is measured does not pay for what it talks to. Must not know what is
measured. The chart server answers every call with one recorded picture, or with one of any size.

Run by itself (`python -m benchmarks.servers`) it serves until its input ends; its first line says where.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from interpreters.sandbox.firestore import FirestoreServer
from interpreters.sandbox.http_server import HttpServer, Reply, Request
from interpreters.sandbox.storage import StorageServer
from interpreters.shipped import CHART_API_FIXTURES

BUCKET = "benchmark-charts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long each server takes, in seconds, and how large a picture is; 0 bytes stand for a recorded one."""

    chart: float = 0.0
    storage: float = 0.0
    firestore: float = 0.0
    picture_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the servers are."""

    chart: str
    storage: str
    firestore: str


class ChartServer(HttpServer):
    """Answers every request with the same picture, after a while."""

    def __init__(self, seconds: float, picture_bytes: int = 0) -> None:
        """Take a port."""
        self._seconds = seconds
        self._reply = Reply(200, a_picture(picture_bytes), "image/png")
        super().__init__(self._answer)

    def _answer(self, _request: Request) -> Reply:
        self.pause(self._seconds)
        return self._reply


def a_picture(size: int) -> bytes:
    """Return a whole PNG of so many bytes; of 0, a recorded chart."""
    if not size:
        return next(CHART_API_FIXTURES.rglob("*.png")).read_bytes()
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    body = header + _chunk(b"IDAT", zlib.compress(b"\0\0"))
    start, end = b"\x89PNG\r\n\x1a\n", _chunk(b"IEND", b"")
    padding = size - len(start) - len(body) - len(end) - len(_chunk(b"tEXt", b""))
    return start + body + _chunk(b"tEXt", bytes(padding)) + end


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class Servers:
    """The servers, in a process of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Wait until they listen."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._asking, self._answers = process.stdin, process.stdout
        self.at = Addresses(**json.loads(self._answers.readline()))

    def counted(self) -> dict[str, int]:
        """Return what Firestore has counted since it was asked the last time."""
        self._asking.write("\n")
        self._asking.flush()
        return dict(json.loads(self._answers.readline()))


@contextmanager
def serving(delays: Delays) -> Iterator[Servers]:
    """Serve until the end of the block."""
    command = [sys.executable, "-m", "benchmarks.servers", json.dumps(asdict(delays))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Servers(process)
        finally:
            process.kill()


def main() -> None:
    """Serve until the input ends; for each line of it, say what was counted since the last."""
    delays = Delays(**json.loads(sys.argv[1]))
    firestore = FirestoreServer(latency_seconds=delays.firestore)
    storage = StorageServer(buckets=(BUCKET,), latency_seconds=delays.storage)
    with firestore, storage, ChartServer(delays.chart, delays.picture_bytes) as chart:
        at = Addresses(chart=chart.address, storage=storage.address, firestore=firestore.address)
        print(json.dumps(asdict(at)), flush=True)
        for _ in sys.stdin:
            tally = firestore.tally
            counted = {
                "round trips": tally.calls.total(),
                "commits": tally.calls["Commit"],
                "documents written": tally.documents_written.total(),
                "documents read": tally.documents_read.total(),
                "bytes": tally.bytes_received.total() + tally.bytes_sent.total(),
            }
            tally.clear()
            print(json.dumps(counted), flush=True)


if __name__ == "__main__":
    main()
