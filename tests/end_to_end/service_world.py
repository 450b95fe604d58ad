"""The service as Cloud Run runs it, the sandbox it talks to, and what must hold whatever happens.

Owns service processes (start, kill, SIGTERM, restart, live logs), the writing of flow_runs as any user of Firestore
writes them, events sent by hand, and `check_invariants`.

Where FIRESTORE_EMULATOR_HOST or STORAGE_EMULATOR_HOST is set when the tests start, that server is used instead of the
sandbox's: documents and objects are read and written through Google's client libraries alone, events are made from
what the tests write, and tests that need a server of our own (its faults, its counters) are skipped: see
`own_firestore` and `own_storage`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from threading import Condition, Thread
from typing import IO, Any, Self

import pytest
import requests
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore, storage  # type: ignore[attr-defined]
from google.cloud.firestore_v1 import _helpers
from google.cloud.firestore_v1.types import Document as StoredDocument
from google.protobuf.json_format import MessageToDict

from core.charts.images import png_size
from core.charts.manifest import manifest_problems
from core.charts.step import STEP_TYPE
from core.charts.templates import parse_template, request_body
from core.charts.usage import USAGE_COLLECTION
from core.flow.leases import attempts_of, lease_end
from core.secrets import Secret
from effects.moments import parse_moment
from interpreters.documents.firestore import FirestoreDocuments
from interpreters.sandbox.chart_img import PRO, SandboxAccount
from interpreters.sandbox.chart_img.pictures import picture_of
from interpreters.sandbox.eventarc import WRITTEN, Eventarc, Retries
from interpreters.sandbox.eventarc.events import Source, payload_of
from interpreters.sandbox.firestore import Change
from interpreters.sandbox.whole import BUCKET, PROJECT, Sandbox
from interpreters.shipped import FLOW_RUNS, TEMPLATES
from interpreters.templates import TemplateFolder, store_templates
from tests.builders import CANARY, STEP_ID, a_flow_run, a_step, an_input
from tests.end_to_end import zygote
from tests.end_to_end.console import environment
from tests.end_to_end.zygote import ROOT, SCRIPTS

HOST = "127.0.0.1"
WORKER, ORCHESTRATOR, REAPER = "worker_chart_export", "advance_flow", "reap_abandoned_steps"
REPORTER = "worker_llm_client"
SIGNATURES = {WORKER: "cloudevent", ORCHESTRATOR: "cloudevent", REPORTER: "cloudevent", REAPER: "http"}
PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.02
SYMBOL, TIMEFRAME = "BTCUSDT", "4h"
FIVE_CHARTS: dict[str, Any] = json.loads((FLOW_RUNS / "five_charts.json").read_text("utf-8"))
FIVE = tuple(one["chartTemplateId"] for one in FIVE_CHARTS["steps"][STEP_ID]["inputs"]["requests"])
TWO = FIVE[:2]
TERMINAL = frozenset({"SUCCEEDED", "FAILED"})
PROTOBUF, JSON = "application/protobuf", "application/json"
QUICK = Retries(first_seconds=0.1, most_seconds=0.3, tries=1_000)
MODES = ("transaction", "precondition")

FOREIGN = {
    name: os.environ[name] for name in ("FIRESTORE_EMULATOR_HOST", "STORAGE_EMULATOR_HOST") if os.environ.get(name)
}
"""Servers that stood in the environment when the tests started."""
own_firestore = pytest.mark.skipif(
    "FIRESTORE_EMULATOR_HOST" in FOREIGN, reason="needs the faults and counters of the sandbox's Firestore"
)
own_storage = pytest.mark.skipif(
    "STORAGE_EMULATOR_HOST" in FOREIGN, reason="needs the faults of the sandbox's Cloud Storage"
)

_LIFE = {
    (None, "READY"),
    (None, "SUCCEEDED"),
    ("READY", "READY"),
    ("READY", "RUNNING"),
    ("RUNNING", "RUNNING"),
    ("RUNNING", "SUCCEEDED"),
    ("RUNNING", "FAILED"),
}
"""How the status of a step may change from one version of its document to the next, where there are only workers."""
_ORCHESTRATED = {
    *_LIFE,
    (None, "PENDING"),
    (None, "RUNNING"),
    ("PENDING", "PENDING"),
    ("PENDING", "READY"),
    ("RUNNING", "READY"),
}
"""The same where there is an orchestrator; on top of it, see `_move_problems`."""
_RUN_LIFE = {
    ("PENDING", "RUNNING"),
    ("PENDING", "SUCCEEDED"),
    ("PENDING", "FAILED"),
    ("PENDING", "CANCELLED"),
    ("RUNNING", "SUCCEEDED"),
    ("RUNNING", "FAILED"),
    ("RUNNING", "CANCELLED"),
}
"""How the status of a run may change."""


def wait_until(
    is_so: Callable[[], Any],
    what: str,
    seconds: float = PATIENCE_SECONDS,
    *,
    said: Callable[[], Sequence[str]] = tuple,
) -> Any:
    """Return what the function returns, once that is true; else tell what was said meanwhile."""
    ends = time.monotonic() + seconds
    while not (value := is_so()):
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what} {said()}"
        time.sleep(POLL_SECONDS)
    return value


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def canary_accounts(**limits: int) -> tuple[SandboxAccount, ...]:
    """Return two accounts whose keys must appear nowhere."""
    accounts = [SandboxAccount(one, Secret(f"{CANARY}-{one}"), PRO) for one in ("acc1", "acc2")]
    return tuple(one.limited(**{"per_day": 5_000, **limits}) for one in accounts)


# The process.


class Service:
    """One function of the service on one port, under functions-framework; it may die and be started again."""

    def __init__(
        self,
        variables: Mapping[str, str],
        port: int | None = None,
        *,
        target: str = WORKER,
        real: bool = False,
    ) -> None:
        self.target = target
        self.port = port or free_port()
        self.url = f"http://{HOST}:{self.port}/"
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self._variables = variables
        self._real = real
        self._process: zygote.Process | None = None
        self._readers: list[Thread] = []
        self._news = Condition()
        self._watchers: list[tuple[str, Callable[[], None]]] = []

    def launch(self) -> Self:
        """Start the process, and wait for nothing."""
        options = ("--target", self.target, "--signature-type", SIGNATURES[self.target], "--host", HOST)
        self._process = zygote.start(
            [SCRIPTS / "functions-framework", "--source", "service.py", *options, "--port", str(self.port)],
            cwd=ROOT,
            env=environment(self._variables),
            start_new_session=True,
            real=self._real,
        )
        streams = ((self._process.stdout, self.stdout), (self._process.stderr, self.stderr))
        self._readers = [Thread(target=self._read, args=one, daemon=True) for one in streams]
        for reader in self._readers:
            reader.start()
        return self

    def start(self) -> Self:
        """Start the process, and wait until its port answers."""
        self.launch()
        self.await_port()
        return self

    def await_port(self) -> None:
        wait_until(self._answers, "the service answers", said=lambda: self.stderr[-5:])

    def ensure_running(self) -> None:
        """Start the process again if it has ended."""
        if not self.is_running:
            self.join()
            self.start()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End the process and its children with SIGKILL, at once."""
        self._signal_all(signal.SIGKILL)

    def pause(self) -> None:
        """Let the process and its children do nothing until they are resumed; they do not notice."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask the process to end, as Cloud Run does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def join(self, seconds: float = PATIENCE_SECONDS) -> int | None:
        """Wait for the end of the process; return its exit code."""
        if self._process is None:
            return None
        code = self._process.wait(seconds)
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._process = None
        return code

    def stop(self) -> None:
        if self.is_running:
            self.kill()
        self.join()

    def entries(self, event: str | None = None, run_id: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Return the entries of the log, all or those of one name, run or other field."""
        with self._news:
            lines = list(self.stderr)
        given = {"event": event, "runId": run_id, **fields}.items()
        wanted = [(name, value) for name, value in given if value is not None]
        entries = (_entry(line) for line in lines if line.startswith("{"))
        return [entry for entry in entries if all(entry.get(name) == value for name, value in wanted)]

    def at_event(self, event: str, act: Callable[[], None]) -> None:
        """Act once, as soon as the log has the next entry of that name."""
        with self._news:
            self._watchers.append((event, act))

    def _read(self, stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            with self._news:
                lines.append(line)
                due = [act for event, act in self._watchers if f'"event": "{event}"' in line]
                self._watchers = [one for one in self._watchers if one[1] not in due]
            for act in due:
                act()

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def _answers(self) -> bool:
        assert self.is_running, f"the service ended: {self.stderr[-5:]}"
        with socket.socket() as one:
            return one.connect_ex((HOST, self.port)) == 0


@lru_cache(100_000)
def _entry(line: str) -> dict[str, Any]:
    """Return the entry of a line, which is read only once: tests look through a log again and again."""
    return dict(json.loads(line))


# Events by hand.


@dataclass(frozen=True)
class Written:
    """A document as it was written, in the form that events are made of."""

    name: str
    new: Any
    old: Any = None
    update_mask: Sequence[str] = ()
    commit_time: int = 0


def written(path: str, document: Mapping[str, Any]) -> Written:
    name = f"projects/{PROJECT}/databases/(default)/documents/{path}"
    fields = _helpers.encode_dict(dict(document))
    return Written(name, StoredDocument(name=name, fields=fields), commit_time=time.time_ns() // 1_000)


def protobuf_payload(path: str, document: Mapping[str, Any]) -> bytes:
    return payload_of(written(path, document))


def json_payload(path: str, document: Mapping[str, Any]) -> bytes:
    """Return the event's data as JSON with typed values."""
    stored = StoredDocument.pb(written(path, document).new)
    return json.dumps({"value": MessageToDict(stored), "oldValue": {}, "updateMask": {}}).encode()


def post(
    url: str,
    body: bytes,
    content_type: str = PROTOBUF,
    *,
    seconds: float = PATIENCE_SECONDS,
    **attributes: str | None,
) -> int:
    """Send a CloudEvent in binary mode; return the status of the answer."""
    headers = {
        **Source(PROJECT, "(default)", "nam5").headers(uuid.uuid4().hex, WRITTEN, written("flow_runs/none", {})),
        "ce-datacontenttype": content_type,
        "content-type": content_type,
        **{f"ce-{name}": value for name, value in attributes.items()},
    }
    with requests.Session() as session:
        session.trust_env = False
        sent = {name: value for name, value in headers.items() if value is not None}
        with session.post(url, data=body, headers=sent, timeout=seconds) as response:
            return response.status_code


# The world.


@dataclass(kw_only=True)
class World:
    """The sandbox, the services that are subscribed to it, and the clients of a user."""

    sandbox: Sandbox
    services: Sequence[Service]
    database: firestore.Client
    storage: storage.Client
    changes: list[Change] = field(default_factory=list)
    """What was committed since the last check."""
    runs: list[str] = field(default_factory=list)
    """Runs that were written since the last check."""
    subscriptions: list[Any] = field(default_factory=list)

    @property
    def service(self) -> Service:
        return self.services[0]

    def of(self, target: str) -> list[Service]:
        return [service for service in self.services if service.target == target]

    @property
    def listeners(self) -> list[Service]:
        """Return the services that events are delivered to."""
        return [service for service in self.services if SIGNATURES[service.target] == "cloudevent"]

    def write(self, run_id: str | None = None, **changes: Any) -> str:
        """Write a flow_run, as any user of Firestore would; return its id."""
        run_id = run_id or f"20251215-102530_BTCUSDT_{uuid.uuid4().hex[:6]}"
        return self.put(a_run(run_id, **changes))

    def put(self, document: Mapping[str, Any]) -> str:
        """Write this very flow_run; return its id."""
        run_id = str(document["runId"])
        self.runs.append(run_id)
        self.document(run_id).set(dict(document))
        if "FIRESTORE_EMULATOR_HOST" in FOREIGN:
            self.sandbox.eventarc.publish(written(f"flow_runs/{run_id}", document))
        return run_id

    def document(self, run_id: str) -> Any:
        return self.database.collection("flow_runs").document(run_id)

    def run(self, run_id: str) -> dict[str, Any]:
        return dict(self.document(run_id).get().to_dict() or {})

    def step(self, run_id: str, step_id: str = STEP_ID) -> dict[str, Any]:
        return dict(self.run(run_id)["steps"][step_id])

    def change_step(self, run_id: str, step_id: str, **values: Any) -> None:
        """Change fields of a step, as any user of Firestore would; `__` stands between the names of a path."""
        paths = {name: firestore.Client.field_path("steps", step_id, *name.split("__")) for name in values}
        self.document(run_id).update({paths[name]: value for name, value in values.items()})

    def await_end(self, run_id: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait until the step is terminal; return it."""
        return self.await_status(run_id, STEP_ID, *TERMINAL, seconds=seconds)

    def await_status(
        self, run_id: str, step_id: str, *statuses: str, seconds: float = PATIENCE_SECONDS
    ) -> dict[str, Any]:
        """Wait until the step has one of these statuses; return it."""

        def arrived() -> dict[str, Any] | None:
            step = self.step(run_id, step_id)
            return step if step["status"] in statuses else None

        what = f"{step_id} of {run_id} becomes {' or '.join(statuses)}"
        return dict(wait_until(self._looking(arrived), what, seconds, said=lambda: self.said(run_id)))

    def await_run(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """Wait until the run has one of these statuses; return it."""

        def arrived() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if run["status"] in statuses else None

        what = f"{run_id} becomes {' or '.join(statuses)}"
        return dict(wait_until(self._looking(arrived), what, said=lambda: self.said(run_id)))

    def _looking(self, look: Callable[[], Any]) -> Callable[[], Any]:
        """Look first, and then again only where something was committed since; of foreign servers, nobody says."""
        seen = -1

        def looked() -> Any:
            nonlocal seen
            count = len(self.changes)
            if count == seen and "FIRESTORE_EMULATOR_HOST" not in FOREIGN:
                return None
            seen = count
            return look()

        return looked

    def await_entry(self, event: str, run_id: str | None = None, **fields: Any) -> dict[str, Any]:
        """Wait for an entry of the log; return the first."""
        what = f"{event} is logged for {run_id} {fields or ''}"
        return dict(wait_until(lambda: self.entries(event, run_id, **fields), what)[0])

    def entries(self, event: str | None = None, run_id: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        return [entry for service in self.services for entry in service.entries(event, run_id, **fields)]

    def said(self, run_id: str) -> list[str]:
        return [entry["message"] for entry in self.entries(run_id=run_id)]

    def drain(self) -> None:
        """Wait until every event was taken."""
        assert self.sandbox.eventarc.drain(PATIENCE_SECONDS), "events are left that no service takes"

    def manifest(self, run_id: str) -> dict[str, Any]:
        return dict(json.loads(self.object(self.step(run_id)["outputs"]["outputsManifestGcsUri"])))

    def object(self, uri: str) -> bytes:
        bucket, _, name = uri.removeprefix("gs://").partition("/")
        return bytes(self.storage.bucket(bucket).blob(name).download_as_bytes())

    def objects(self, run_id: str) -> dict[str, bytes]:
        blobs = self.storage.list_blobs(BUCKET, prefix=f"charts/{run_id}/")
        return {one.name: one.download_as_bytes() for one in blobs}

    def usages(self) -> dict[str, dict[str, Any]]:
        return {one.id: one.to_dict() or {} for one in self.database.collection(USAGE_COLLECTION).stream()}

    def subscribe(self) -> None:
        eventarc = self.sandbox.eventarc
        self.subscriptions.extend(eventarc.subscribe(service.url) for service in self.listeners)

    def unsubscribe(self) -> None:
        while self.subscriptions:
            self.sandbox.eventarc.unsubscribe(self.subscriptions.pop())

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Deliver no events meanwhile."""
        self.drain()
        self.unsubscribe()
        try:
            yield
        finally:
            self.subscribe()

    @contextmanager
    def delivered_by(self, eventarc: Eventarc) -> Iterator[None]:
        """Let another Eventarc deliver meanwhile."""
        with self.silence(), eventarc:
            for service in self.listeners:
                eventarc.subscribe(service.url)
            stop = self.sandbox.firestore.database.subscribe(eventarc.publish)
            try:
                yield
            finally:
                stop()

    @contextmanager
    def scenario(self) -> Iterator[Self]:
        """Begin with nothing planned to go wrong; check at the end that everything holds."""
        self.settle()
        yield self
        self.settle()
        changes = list(self.changes)
        check_invariants(self, self.runs, changes)
        self.runs.clear()
        del self.changes[: len(changes)]

    def settle(self) -> None:
        """Let nothing go wrong any more, all services run, and all events be taken."""
        for faults in (self.sandbox.firestore.faults, self.sandbox.storage.faults, self.sandbox.chart_img.faults):
            faults.clear()
        for service in self.services:
            service.ensure_running()
        self.drain()
        self._forget_exhaustion()

    def _forget_exhaustion(self) -> None:
        """Count an account that was exhausted by a fault as far as the provider does, unless others share it."""
        if "FIRESTORE_EMULATOR_HOST" in FOREIGN:
            return
        calls = _calls(self)
        for account_id, usage in self.usages().items():
            counted = calls[account_id, _day(usage)]
            if usage["usageToday"] > counted + 1_000:
                reference = self.database.collection(USAGE_COLLECTION).document(account_id)
                reference.update({"usageToday": counted})


def a_run(
    run_id: str, charts: Sequence[str] = TWO, min_images: int | None = None, **changes: Any
) -> dict[str, Any]:
    """Return a flow_run with one READY step of these charts, all of which are wanted."""
    inputs = an_input(charts, len(charts) if min_images is None else min_images)
    step = a_step(inputs=inputs, timeframe=TIMEFRAME, status=changes.pop("status", "READY"))
    steps = changes.pop("steps", None) or {STEP_ID: step}
    return a_flow_run(steps, runId=run_id, **changes)


@contextmanager
def a_world(
    variables: Mapping[str, str] | None = None,
    *,
    accounts: Sequence[SandboxAccount] | None = None,
    services: int = 1,
    others: Sequence[str] = (),
    real: bool = False,
) -> Iterator[World]:
    """Run a sandbox with templates in it, and so many chart workers and others that are subscribed to it.

    See `zygote.start` for `real`.
    """
    with ExitStack() as running:
        sandbox = running.enter_context(Sandbox(accounts=accounts or canary_accounts(), retries=QUICK))
        surroundings = {**sandbox.environment(), **FOREIGN}
        given = {**surroundings, "THREADS": "8", **(variables or {})}
        known = {WORKER: given, ORCHESTRATOR: _without_charts(given), REAPER: _without_charts(given)}
        targets = [*[WORKER] * services, *others]
        processes = [Service(known[one], target=one, real=real).launch() for one in targets]
        for process in processes:
            running.callback(process.stop)
        database, objects = _clients(surroundings)
        running.callback(objects.close)
        running.callback(database.close)
        world = World(sandbox=sandbox, services=processes, database=database, storage=objects)
        running.callback(sandbox.firestore.database.subscribe(world.changes.append))
        _seed(world)
        world.subscribe()
        for process in processes:
            process.await_port()
        yield world


def _without_charts(variables: Mapping[str, str]) -> dict[str, str]:
    """Return what an orchestrator is told: nothing of charts, buckets or accounts."""
    return {
        name: value for name, value in variables.items() if not name.startswith(("CHART", "STORAGE", "FINALIZE"))
    }


def _clients(surroundings: Mapping[str, str]) -> tuple[firestore.Client, storage.Client]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRESTORE_EMULATOR_HOST", "STORAGE_EMULATOR_HOST"):
            patch.setenv(name, surroundings[name])
        patch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
        return (
            firestore.Client(project=PROJECT, credentials=anonymous),
            storage.Client(project=PROJECT, credentials=anonymous),
        )


def _seed(world: World) -> None:
    """Store the templates, and draw their charts once: the drawing is slow, and kept for the whole process."""
    found, _ = TemplateFolder(TEMPLATES).load(FIVE)
    documents = FirestoreDocuments(lambda: world.database, "transaction")
    store_templates(documents, found, dry_run=False)
    if "STORAGE_EMULATOR_HOST" in FOREIGN and not world.storage.bucket(BUCKET).exists():
        world.storage.create_bucket(BUCKET)
    for one, document in found.items():
        picture_of(request_body(parse_template(one, document).unwrap(), SYMBOL, TIMEFRAME, None))


# What must hold whatever happens.


def check_invariants(world: World, run_ids: Sequence[str], changes: Sequence[Change]) -> None:
    """Assert what holds after any scenario: limits, counts, claims, manifests and pictures, and no key anywhere."""
    stored = {run_id: (world.run(run_id), world.objects(run_id)) for run_id in run_ids}
    problems = [
        *_limit_problems(world),
        *_count_problems(world),
        *_history_problems(world, changes),
        *(
            problem
            for run_id, (run, objects) in stored.items()
            for problem in _manifest_problems(run_id, run, objects)
        ),
        *(problem for run_id, (run, _) in stored.items() for problem in _progress_problems(run_id, run)),
        *_log_problems(world),
        *_key_problems(world, changes, [objects for _, objects in stored.values()]),
    ]
    assert not problems, "\n".join(problems)


def _limit_problems(world: World) -> Iterator[str]:
    """Look for calls above a limit, at the provider's side."""
    ledger = world.sandbox.chart_img.ledger
    yield from (f"over the limit: {one}" for one in ledger.over_limits())
    for account in world.sandbox.accounts:
        most = ledger.most_in_a_second(account.id)
        if most > account.plan.requests_per_second:
            yield f"{account.id} was called {most} times within a second"
    plans = {account.id: account.plan for account in world.sandbox.accounts}
    for (account_id, day), calls in ledger.per_day(counted_only=True).items():
        if calls > plans[account_id].requests_per_day:
            yield f"{account_id} was called {calls} times on {day}"


def _count_problems(world: World) -> Iterator[str]:
    """Look for calls that the usage documents do not count."""
    usages = world.usages()
    today = datetime.now(UTC).date()
    for (account_id, day), calls in _calls(world).items():
        usage = usages.get(account_id)
        if usage is None:
            yield f"{account_id} was called, and has no usage document"
        elif day == _day(usage) and usage["usageToday"] < calls:
            yield f"{account_id} was called {calls} times, and {usage['usageToday']} are counted"
        elif day == today and _day(usage) < day:
            yield f"{account_id} was called today, and is counted on {_day(usage)}"


def _calls(world: World) -> Counter[tuple[str, date]]:
    return Counter(world.sandbox.chart_img.ledger.per_day())


def _day(usage: Mapping[str, Any]) -> date:
    moment = parse_moment(usage["windowStart"])
    assert moment is not None
    return moment.astimezone(UTC).date()


def _history_problems(world: World, changes: Sequence[Change]) -> Iterator[str]:
    """Look in the history of the database for claims of a claimed step, and for steps and runs that went back."""
    life = _ORCHESTRATED if world.of(ORCHESTRATOR) or world.of(REAPER) else _LIFE
    for change in changes:
        if "/flow_runs/" not in change.name or change.new is None:
            continue
        before, after = _fields(change.old), _fields(change.new)
        if before and (moved := (before["status"], after["status"])) not in _RUN_LIFE and moved[0] != moved[1]:
            yield f"{change.name} went from {moved[0]} to {moved[1]}"
        for step_id, step in after.get("steps", {}).items():
            old = before.get("steps", {}).get(step_id, {})
            if old != step and (moved := (old.get("status"), step["status"])) not in life:
                yield f"{change.name}: {step_id} went from {moved[0]} to {moved[1]}"
            if old and old != step:
                problems = _move_problems(after, old, step, change.commit_time / 1e6)
                yield from (f"{change.name}: {step_id} {problem}" for problem in problems)


def _move_problems(
    flow_run: Mapping[str, Any], old: Mapping[str, Any], step: Mapping[str, Any], at: float
) -> Iterator[str]:
    """Look for a claim, a return or a promotion that was not due."""
    moved, end = (old["status"], step["status"]), lease_end(old)
    if _token(old) != _token(step) and moved != ("READY", "RUNNING"):
        yield f"was claimed by {_token(old)}, then by {_token(step)}"
    if _token(old) != _token(step) and attempts_of(step) != attempts_of(old) + 1:
        yield f"was claimed in attempt {attempts_of(step)} after {attempts_of(old)}"
    if moved == ("RUNNING", "READY") and end is not None and end.timestamp() > at:
        yield f"was returned before the end of its lease at {end}"
    if moved == ("PENDING", "READY"):
        unmet = [one for one in step["dependsOn"] if flow_run["steps"][one]["status"] != "SUCCEEDED"]
        if unmet or flow_run["status"] != "RUNNING":
            yield f"was promoted in a {flow_run['status']} run, before {unmet}"


def _progress_problems(run_id: str, run: Mapping[str, Any]) -> Iterator[str]:
    """Look for counts of steps that are not so."""
    counts = run.get("progress", {}).get("stepCounts")
    if counts is not None:
        actual = Counter(step["status"].lower() for step in run["steps"].values())
        told = {name: number for name, number in counts.items() if number and name != "total"}
        if told != actual or counts["total"] != actual.total():
            yield f"{run_id} counts {counts}, and has {dict(actual)}"


def _fields(document: Any) -> dict[str, Any]:
    return {} if document is None else dict(_helpers.decode_dict(document.fields, None))


def _steps(document: Any) -> dict[str, dict[str, Any]]:
    return dict(_fields(document).get("steps", {}))


def _token(step: Mapping[str, Any]) -> str | None:
    token: str | None = step.get("outputs", {}).get("execution", {}).get("claim", {}).get("token")
    return token


def claims(world: World, run_id: str) -> list[str | None]:
    """Return the tokens under which the step of a run became RUNNING, in order; without a history, as counted."""
    if "FIRESTORE_EMULATOR_HOST" in FOREIGN:
        step = world.step(run_id)
        return [_token(step)] * int(step["outputs"]["execution"]["claim"]["attempt"])
    steps = history(world, run_id, STEP_ID)
    return [_token(new) for old, new in steps if new.get("status") == "RUNNING" and _token(old) != _token(new)]


def history(world: World, run_id: str, step_id: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the step before and after each commit that wrote its run."""
    ours = [one for one in list(world.changes) if one.name.endswith(f"/flow_runs/{run_id}") and one.new]
    return [(_steps(one.old).get(step_id, {}), _steps(one.new).get(step_id, {})) for one in ours]


def _manifest_problems(run_id: str, run: Mapping[str, Any], objects: Mapping[str, bytes]) -> Iterator[str]:
    """Look for a manifest that is missing or wrong, and for pictures that it names and that are none."""
    for step_id, step in run.get("steps", {}).items():
        uri = step.get("outputs", {}).get("outputsManifestGcsUri")
        is_claimed = step.get("stepType") == STEP_TYPE and _token(step) is not None
        if step["status"] == "SUCCEEDED" and uri is None and is_claimed:
            yield f"{run_id} {step_id} succeeded without a manifest"
        if uri is not None:
            yield from (f"{run_id} {step_id}: {one}" for one in _manifest_at(uri, objects))


def _manifest_at(uri: str, objects: Mapping[str, bytes]) -> Iterator[str]:
    stored = objects.get(_name(uri))
    if stored is None:
        yield f"there is no {uri}"
        return
    manifest = json.loads(stored)
    yield from map(str, manifest_problems(manifest))
    for item in manifest["items"]:
        picture = objects.get(_name(item["png_gcs_uri"]))
        if picture is None or png_size(picture) is None:
            yield f"{item['png_gcs_uri']} is {'missing' if picture is None else 'no picture'}"


def _name(uri: str) -> str:
    return uri.removeprefix(f"gs://{BUCKET}/")


def _log_problems(world: World) -> Iterator[str]:
    """Look for lines of ours that are not whole."""
    for service in world.services:
        for line in list(service.stderr):
            try:
                _entry(line) if line.startswith("{") else None
            except ValueError:
                yield f"not a whole line of the log: {line!r}"


def _key_problems(world: World, changes: Sequence[Change], stored: Sequence[Mapping[str, bytes]]) -> Iterator[str]:
    """Look for a key in all logs, in these versions of documents, and in these objects."""
    needle = CANARY.encode()
    for service in world.services:
        yield from (f"a key in the log: {one!r}" for one in [*service.stdout, *service.stderr] if CANARY in one)
    if "FIRESTORE_EMULATOR_HOST" in FOREIGN:  # which tells no versions
        for collection in world.database.collections():
            yield from (f"a key in {one.id}" for one in collection.stream() if CANARY in str(one.to_dict()))
    for change in changes:
        if change.new is not None and needle in change.new.SerializeToString():
            yield f"a key in {change.name}"
    for objects in stored:
        for name, content in objects.items():
            if needle in name.encode() + content:
                yield f"a key in {name}"
