"""A service's subscription.

Owns what a service wants to hear of, and where it is. Must not know how events get there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from interpreters.sandbox.eventarc.events import WITH_AUTH_CONTEXT, Change, document_path, types_of


@dataclass(eq=False)
class Subscription:
    """A service, and what it wants to hear of."""

    url: str
    """Where events go; if it is changed, so do the next tries of events that wait."""
    collection: str | None
    """The collection whose documents count, None for all."""
    event_types: Collection[str]
    """The types of event that are sent, each as an event of its own."""

    def wanted_types(self, change: Change) -> list[str]:
        """Return the types under which the change is sent to the service."""
        if self.collection not in {None, document_path(change).rpartition("/")[0]}:
            return []
        types = types_of(change)
        return [one for one in sorted(self.event_types) if one.removesuffix(WITH_AUTH_CONTEXT) in types]
