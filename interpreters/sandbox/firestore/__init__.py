"""Firestore in this process, true to Google's documentation where that matters to a worker.

Transactions lock what they read, preconditions hold, writes that change nothing make no event.
"""

from interpreters.sandbox.firestore.changes import Change
from interpreters.sandbox.firestore.database import Commit, Database
from interpreters.sandbox.firestore.faults import Fault, FaultPlan
from interpreters.sandbox.firestore.server import FirestoreServer
from interpreters.sandbox.firestore.transactions import Limits

__all__ = ["Change", "Commit", "Database", "Fault", "FaultPlan", "FirestoreServer", "Limits"]
