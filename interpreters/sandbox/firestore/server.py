"""Firestore's gRPC server: the official client libraries talk to it through FIRESTORE_EMULATOR_HOST.

Owns the socket, the table of calls, faults and latency. Must not know what the calls do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc  # type: ignore[import-untyped]

from interpreters.sandbox.firestore.database import Database
from interpreters.sandbox.firestore.failures import FirestoreError, unimplemented
from interpreters.sandbox.firestore.faults import Fault, FaultPlan
from interpreters.sandbox.firestore.reading import Reading
from interpreters.sandbox.firestore.tally import Tally
from interpreters.sandbox.firestore.wire import Message, request_parser, serialize
from interpreters.sandbox.firestore.writing import Writing

_SERVICE = "google.firestore.v1.Firestore"
_STREAMS = {"BatchGetDocuments", "RunQuery"}
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.so_reuseport", 0),
)

Call = Callable[[Message], Any]
"""From a request to its answer, or to its answers where the call is a stream."""


class FirestoreServer:
    """A Firestore in this process; start it, or use it as a context manager."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        database: Database | None = None,
        latency_seconds: float = 0.0,
        threads: int = 64,
    ) -> None:
        """Prepare to listen; port 0 takes any free one."""
        self.database = database or Database()
        self.faults = FaultPlan()
        self.latency_seconds = latency_seconds
        self.tally = Tally()
        self._host = host
        self._port = port
        self._threads = threads
        self._server: Any = None
        self._pool: ThreadPoolExecutor | None = None

    @property
    def calls(self) -> Counter[str]:
        """How often each call came, by its name."""
        return self.tally.calls

    @property
    def documents_read(self) -> Counter[str]:
        """How many documents each call looked up."""
        return self.tally.documents_read

    @property
    def documents_written(self) -> Counter[str]:
        """How many writes each call applied."""
        return self.tally.documents_written

    @property
    def address(self) -> str:
        """The host and port, as FIRESTORE_EMULATOR_HOST wants them."""
        return f"{self._host}:{self._port}"

    def start(self) -> Self:
        """Listen; return the server itself."""
        self._pool = ThreadPoolExecutor(self._threads, "firestore")
        self._server = grpc.server(self._pool, options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(), _Unimplemented()))
        self._port = self._server.add_insecure_port(self.address)
        self._server.start()
        return self

    def stop(self, grace_seconds: float | None = None) -> None:
        """Listen no more; calls under way may take the grace time."""
        if self._server is not None and self._pool is not None:
            self._server.stop(grace_seconds).wait()
            self._pool.shutdown(wait=False)
            self._server = self._pool = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _handlers(self) -> Any:
        table = {method: self._handler(method, call) for method, call in self._table().items()}
        return grpc.method_handlers_generic_handler(_SERVICE, table)

    def _table(self) -> Mapping[str, Call]:
        reading = Reading(self.database, self.tally)
        writing = Writing(self.database, self.tally)
        return {
            "BatchGetDocuments": reading.batch_get_documents,
            "BatchWrite": writing.batch_write,
            "BeginTransaction": writing.begin_transaction,
            "Commit": writing.commit,
            "CreateDocument": writing.create_document,
            "DeleteDocument": writing.delete_document,
            "GetDocument": reading.get_document,
            "ListCollectionIds": reading.list_collection_ids,
            "ListDocuments": reading.list_documents,
            "Rollback": writing.rollback,
            "RunQuery": reading.run_query,
            "UpdateDocument": writing.update_document,
        }

    def _handler(self, method: str, call: Call) -> Any:
        kind = grpc.unary_stream_rpc_method_handler if method in _STREAMS else grpc.unary_unary_rpc_method_handler
        answer = self._stream_answer if method in _STREAMS else self._answer
        parser = request_parser(f"{method}Request")

        def handle(request: Message, context: Any) -> Any:
            return answer(method, call, request, context)

        def parse(data: bytes) -> Message:
            self.tally.received(method, len(data))
            return parser(data)

        def counted(message: Message) -> bytes:
            data = serialize(message)
            self.tally.sent(method, len(data))
            return data

        return kind(handle, parse, counted)

    def _stream_answer(self, method: str, call: Call, request: Message, context: Any) -> Iterator[Message]:
        yield from self._answer(method, lambda one: list(call(one)), request, context)

    def _answer(self, method: str, call: Call, request: Message, context: Any) -> Any:
        self.tally.called(method)
        answers_at = time.monotonic() + self.latency_seconds
        fault = self.faults.take(method, request)
        try:
            self._suffer_before(fault, request)
            answer = call(request)
            _suffer(fault, "after")
        except FirestoreError as error:
            _sleep_until(answers_at)
            context.abort(error.code, error.message)
        _sleep_until(answers_at)
        return answer

    def _suffer_before(self, fault: Fault | None, request: Message) -> None:
        """Fail before anything is applied; what is aborted ends its transaction, as Firestore does."""
        if fault is not None and fault.when == "before" and fault.code is grpc.StatusCode.ABORTED:
            transaction = getattr(request, "transaction", b"")
            if transaction:
                self.database.roll_back(request.database, transaction)
        _suffer(fault, "before")


class _Unimplemented(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every call that is in no table."""

    def service(self, details: Any) -> Any:
        """Return a handler that refuses the call."""

        def refuse(requests: Iterable[bytes], context: Any) -> Iterator[bytes]:
            error = unimplemented(f"the call {details.method}")
            context.abort(error.code, error.message)
            yield from ()

        return grpc.stream_stream_rpc_method_handler(refuse)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _suffer(fault: Fault | None, when: str) -> None:
    if fault is None or fault.when != when:
        return
    time.sleep(fault.delay_seconds)
    if fault.code is not None:
        raise FirestoreError(fault.code, fault.message)
