"""The sandbox: the cloud in one process.

Owns putting the servers together, and the environment that points the official client libraries at them. Must not know
what runs against it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from core.secrets import Secret
from interpreters.sandbox.chart_img import PRO, ChartImgServer, SandboxAccount
from interpreters.sandbox.eventarc import Chances, Eventarc, Retries
from interpreters.sandbox.firestore import FirestoreServer
from interpreters.sandbox.gemini import GeminiServer
from interpreters.sandbox.storage import StorageServer

PROJECT = "sandbox"
BUCKET = "sandbox-charts"


def sandbox_accounts() -> tuple[SandboxAccount, ...]:
    """Return two accounts of the PRO plan, whose keys open nothing but the sandbox."""
    return tuple(SandboxAccount(one, Secret(f"sandbox-key-of-{one}"), PRO) for one in ("acc1", "acc2"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the servers listen; 0 is any free port."""

    firestore: int = 0
    storage: int = 0
    chart_img: int = 0
    gemini: int = 0


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """Firestore, Cloud Storage, Chart-IMG, Gemini, and the delivery of events to services."""

    services: Sequence[str] = ()
    """URLs that every change of a flow_run is delivered to."""
    accounts: Sequence[SandboxAccount] = field(default_factory=sandbox_accounts)
    ports: Ports = field(default_factory=Ports)
    chances: Chances = field(default_factory=Chances)
    retries: Retries = field(default_factory=Retries)
    model_key: Secret = field(default_factory=lambda: Secret("sandbox-key-of-the-model"))
    seed: int = 0
    firestore: FirestoreServer = field(init=False)
    storage: StorageServer = field(init=False)
    chart_img: ChartImgServer = field(init=False)
    gemini: GeminiServer = field(init=False)
    eventarc: Eventarc = field(init=False)
    _running: ExitStack = field(init=False, default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Make the servers; nothing listens yet."""
        self.firestore = FirestoreServer(port=self.ports.firestore)
        self.storage = StorageServer(buckets=(BUCKET,), port=self.ports.storage)
        self.chart_img = ChartImgServer(self.accounts, port=self.ports.chart_img)
        self.gemini = GeminiServer(self.model_key, port=self.ports.gemini)
        self.eventarc = Eventarc(PROJECT, seed=self.seed, chances=self.chances, retries=self.retries)

    def __enter__(self) -> Self:
        """Start everything."""
        for server in (self.eventarc, self.firestore, self.storage, self.chart_img, self.gemini):
            self._running.enter_context(server)
        for url in self.services:
            self.eventarc.subscribe(url)
        self._running.callback(self.firestore.database.subscribe(self.eventarc.publish))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self._running.close()

    def subscribe(self, *urls: str) -> None:
        """Deliver later changes of flow_runs to these services too."""
        self.services = (*self.services, *urls)
        for url in urls:
            self.eventarc.subscribe(url)

    def environment(self) -> dict[str, str]:
        """Return the variables that point workers and client libraries at the sandbox."""
        accounts = [
            {
                "id": account.id,
                "apiKey": account.key.reveal(),
                "dailyLimit": account.plan.requests_per_day,
                "requestsPerSecond": account.plan.requests_per_second,
            }
            for account in self.accounts
        ]
        return {
            "FIRESTORE_EMULATOR_HOST": self.firestore.address,
            "STORAGE_EMULATOR_HOST": self.storage.address,
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "CHARTS_BUCKET": f"gs://{BUCKET}",
            "CHARTS_API_MODE": "real",
            "CHART_IMG_BASE_URL": self.chart_img.address,
            "CHART_IMG_ACCOUNTS_JSON": json.dumps(accounts),
            "ARTIFACTS_BUCKET": f"gs://{BUCKET}",
            "ARTIFACTS_PREFIX": "reports",
            "LLM_API_MODE": "real",
            "GEMINI_BASE_URL": self.gemini.address,
            "GEMINI_API_KEY": self.model_key.reveal(),
            "ENV": "sandbox",
        }
