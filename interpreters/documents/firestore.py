"""Documents in Firestore, by transaction or by `update_time` precondition.

Owns commits and their retries. A commit whose answer is an error may have landed all the same: the library itself
sends a commit again, and one that landed then looks like a conflict or an invalid transaction. So every error
is settled the same way: read again and run the rule again, which is idempotent under its own token. Must not know what documents mean.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from google.api_core import exceptions
from google.api_core.retry import Retry, if_exception_type

from core.cloud import Concurrency
from core.documents import Change, Decision, Documents, ReplaceDocument, Rule, UpdateDocument, apply_change
from effects import Document, FindFlowRuns

if TYPE_CHECKING:
    from google.cloud.firestore import Client, DocumentReference, DocumentSnapshot, Transaction, WriteBatch

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""How long errors of the service are retried."""
CONTENTION_PATIENCE_SECONDS = 600.0
"""How long others' commits to the same documents are waited for: longer than an invocation, so until it is settled."""
DOUBTFUL_TRIES = 3
"""How often an error is retried that means either a commit that landed or a request that can never succeed."""

READ_SECONDS = 10.0
"""How long one read may take."""
READ_RETRY = Retry(
    if_exception_type(exceptions.ServiceUnavailable, exceptions.InternalServerError, exceptions.DeadlineExceeded),
    initial=0.1,
    maximum=2.0,
    timeout=20.0,
)

_CONTENTION = (exceptions.Aborted, exceptions.FailedPrecondition, exceptions.AlreadyExists)
_LIBRARY_GAVE_UP = ("Failed to commit transaction", "The transaction has no transaction ID")
"""How the library's ValueErrors begin when its own tries are used up, or when a begin failed and it rolls back."""
_DOUBTFUL = (exceptions.InvalidArgument, exceptions.NotFound)
_PASSING = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.ResourceExhausted,
    exceptions.Cancelled,
    exceptions.Unknown,
    exceptions.RetryError,
)


class FirestoreDocuments:
    """A document store on a Firestore database."""

    def __init__(
        self,
        client: Callable[[], Client],
        concurrency: Concurrency,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Use the client that the function returns, asked for at the first use."""
        self._client = client
        self._sleep = sleep
        self._attempt = {"transaction": self._in_transaction, "precondition": self._with_preconditions}[
            concurrency
        ]

    def read(self, paths: Sequence[str]) -> Documents:
        """Return the documents, None for those that are not there, in one round trip."""
        return self._patiently(lambda: _documents(self._snapshots(paths)))

    def transact(self, paths: Sequence[str], rule: Rule[T]) -> T:
        """Read, run the rule, commit its changes if nothing it writes has moved, else run it again."""
        guarded = _guarded(rule)
        try:
            return self._patiently(lambda: self._attempt(paths, guarded))
        except _RuleBrokeError as broke:
            raise broke.error from None

    def collection(self, name: str) -> Mapping[str, Document]:
        """Return all documents of a collection by path."""
        return self._patiently(
            lambda: {
                snapshot.reference.path: _plain(snapshot) or {}
                for snapshot in self._client().collection(name).stream(retry=READ_RETRY, timeout=READ_SECONDS)
            }
        )

    def page(self, effect: FindFlowRuns) -> Mapping[str, Document]:
        """Return the documents of a collection that have the status, in order of their paths, after the last page."""
        return self._patiently(lambda: self._page(effect))

    def _page(self, effect: FindFlowRuns) -> dict[str, Document]:
        from google.cloud.firestore import FieldFilter  # noqa: PLC0415 - the library is slow to import

        client = self._client()
        query = client.collection(effect.collection).where(filter=FieldFilter("status", "==", effect.status))
        query = query.order_by("__name__").limit(effect.limit)
        if effect.after is not None:
            query = query.start_after({"__name__": client.document(effect.after)})
        found = query.stream(retry=READ_RETRY, timeout=READ_SECONDS)
        return {snapshot.reference.path: _plain(snapshot) or {} for snapshot in found}

    def _snapshots(
        self, paths: Sequence[str], transaction: Transaction | None = None
    ) -> dict[str, DocumentSnapshot[Any]]:
        if not paths:
            return {}
        client = self._client()
        references = [client.document(path) for path in paths]
        found = client.get_all(references, transaction=transaction, retry=READ_RETRY, timeout=READ_SECONDS)
        return {snapshot.reference.path: snapshot for snapshot in found}

    def _in_transaction(self, paths: Sequence[str], rule: Rule[T]) -> T:
        from google.cloud.firestore import transactional  # noqa: PLC0415 - the library is slow to import

        def body(transaction: Transaction) -> T:
            snapshots = self._snapshots(paths, transaction)
            decision = rule(_documents(snapshots))
            if not decision.changes:
                raise _NothingToWriteError(decision.outcome)
            for change in decision.changes:
                _write(transaction, change, snapshots[change.path], {})
            return decision.outcome

        try:
            outcome: T = transactional(body)(self._client().transaction())
        except _NothingToWriteError as unchanged:
            return unchanged.outcome  # type: ignore[no-any-return]
        return outcome

    def _with_preconditions(self, paths: Sequence[str], rule: Rule[T]) -> T:
        snapshots = self._snapshots(paths)
        decision = rule(_documents(snapshots))
        batch = self._client().batch()
        for change in decision.changes:
            snapshot = snapshots[change.path]
            unmoved = (
                self._client().write_option(last_update_time=snapshot.update_time) if snapshot.exists else None
            )
            _write(batch, change, snapshot, {"option": unmoved})
        if decision.changes:
            batch.commit()
        return decision.outcome

    def _patiently(self, act: Callable[[], T]) -> T:
        """Try until it succeeds, cannot succeed, or patience runs out."""
        started, delays, doubts = time.monotonic(), _delays(), 0
        while True:
            try:
                return act()
            except (exceptions.GoogleAPIError, ValueError) as error:
                cause = _cause(error)
                doubts += isinstance(cause, _DOUBTFUL)
                if doubts >= DOUBTFUL_TRIES or time.monotonic() - started > _patience(cause):
                    raise cause from None
            self._sleep(next(delays))


def _cause(error: BaseException) -> BaseException:
    """Return what is behind the library's ValueErrors: its own tries used up, or a begin that failed."""
    behind = error.__cause__ or error.__context__
    return behind if behind is not None and str(error).startswith(_LIBRARY_GAVE_UP) else error


def _patience(error: BaseException) -> float:
    """Return for how many seconds such an error is worth another try."""
    if isinstance(error, _CONTENTION):
        return CONTENTION_PATIENCE_SECONDS
    return PATIENCE_SECONDS if isinstance(error, (*_PASSING, *_DOUBTFUL)) else -1.0


class _NothingToWriteError(Exception):
    """Ends a transaction without a commit: there is nothing to commit, and no commit to lose the answer of."""

    def __init__(self, outcome: Any) -> None:
        super().__init__()
        self.outcome = outcome


class _RuleBrokeError(Exception):
    """A rule raised: a bug, not an error of the store."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _guarded(rule: Rule[T]) -> Rule[T]:
    """Mark what the rule raises, so that it is not taken for an error of the library."""

    def guarded(documents: Documents) -> Decision[T]:
        try:
            return rule(documents)
        except Exception as error:
            raise _RuleBrokeError(error) from error

    return guarded


def _delays() -> Iterator[float]:
    """Return pauses that grow to about a second, never two alike."""
    longest = 0.05
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311 - jitter
        longest = min(longest * 2, 1.0)


def _documents(snapshots: Mapping[str, DocumentSnapshot[Any]]) -> Documents:
    return {path: _plain(snapshot) for path, snapshot in snapshots.items()}


def _plain(snapshot: DocumentSnapshot[Any]) -> Document | None:
    document: Document | None = snapshot._data  # noqa: SLF001 - `to_dict` copies it, and nobody else has this snapshot
    return document


def _write(
    writer: WriteBatch | Transaction, change: Change, snapshot: DocumentSnapshot[Any], guard: Mapping[str, Any]
) -> None:
    """Add the change, guarded: a missing document is created, an existing one must not have moved."""
    reference: DocumentReference = snapshot.reference
    if not snapshot.exists:
        writer.create(reference, apply_change(None, change))
    elif updates := _field_updates(change, snapshot):
        writer.update(reference, updates, **guard)


def _field_updates(change: Change, snapshot: DocumentSnapshot[Any]) -> dict[str, Any]:
    """Return values by quoted field path; a replacement sets every field and removes the others."""
    from google.cloud.firestore import DELETE_FIELD  # noqa: PLC0415 - the library is slow to import
    from google.cloud.firestore_v1.field_path import FieldPath  # noqa: PLC0415

    if isinstance(change, ReplaceDocument):
        gone = [name for name in snapshot.to_dict() or {} if name not in change.document]
        change = UpdateDocument(
            path=change.path,
            assign={(name,): value for name, value in change.document.items()},
            remove=tuple((name,) for name in gone),
        )
    return {
        **{FieldPath(*path).to_api_repr(): value for path, value in change.assign.items()},
        **{FieldPath(*path).to_api_repr(): DELETE_FIELD for path in change.remove},
    }
