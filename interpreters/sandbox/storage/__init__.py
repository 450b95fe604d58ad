"""Cloud Storage on this machine: what the official client library asks for, with generations and checksums."""

from interpreters.sandbox.storage.contents import Contents
from interpreters.sandbox.storage.faults import FaultPlan
from interpreters.sandbox.storage.server import StorageServer

__all__ = ["Contents", "FaultPlan", "StorageServer"]
