"""Who hears of changes.

Owns the order: every listener hears of every change, one at a time, in the order of the commits, and with no
lock held. A commit by a listener, or beside one that is being told, is told later by the same thread.
Must not know how changes come about.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock

from interpreters.sandbox.firestore.changes import Change

Listener = Callable[[Change], None]
"""Called once for each changed document."""

_LOG = logging.getLogger(__name__)


class Listeners:
    """Tells listeners of changes."""

    def __init__(self) -> None:
        """Start with nobody."""
        self._lock = Lock()
        self._listeners: list[Listener] = []
        self._untold: deque[Change] = deque()
        self._telling = False

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell the listener of all later changes; return the function that ends it."""
        with self._lock:
            self._listeners = [*self._listeners, listener]
        return lambda: self._unsubscribe(listener)

    def add(self, changes: Iterable[Change]) -> None:
        """Take changes in the order of their commits; `tell` passes them on."""
        with self._lock:
            self._untold.extend(changes)

    def tell(self) -> None:
        """Pass on what was added, unless another thread is doing so."""
        with self._lock:
            if self._telling:
                return
            self._telling = True
        while (told := self._next()) is not None:
            change, listeners = told
            for listener in listeners:
                _tell(listener, change)

    def _next(self) -> tuple[Change, list[Listener]] | None:
        with self._lock:
            if self._untold:
                return self._untold.popleft(), self._listeners
            self._telling = False
            return None

    def _unsubscribe(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = [one for one in self._listeners if one is not listener]


def _tell(listener: Listener, change: Change) -> None:
    try:
        listener(change)
    except Exception:  # noqa: BLE001 - whatever a listener does, the commit stands and others are told
        _LOG.exception("a listener failed on the change of %s", change.name)
