"""What must hold, whatever goes wrong: checked at every commit, call, write and end of a run.

Owns the promises, each by name, judged from what can be seen from outside: documents, objects, and the providers' own books. Must
not use the rules that it judges.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from core.flow.step_run import MAX_FINALIZE_TRIES
from effects import AdvanceFlow, CallChartApi, ClaimStep, Document, Effect, FinalizeStep
from effects.moments import parse_moment, utc_day
from interpreters.simulation.scenarios import (
    BUCKET,
    CANDIDATE_TEXT,
    MAX_ATTEMPTS,
    RUN_ID,
    RUN_PATH,
    TEXTS,
)

if TYPE_CHECKING:
    from interpreters.simulation.processes import Active
    from interpreters.simulation.world import World

PROMISES: Mapping[str, str] = {
    "quota": "no account is called more often than its limit, in the provider's own day",
    "pace": "no account is called more than once a second",
    "counted-first": "a call was counted before it was made",
    "counted-once": "a reservation is counted once",
    "quota-used": "a step fails for lack of quota only where there is none",
    "attempts": "a step is claimed, and the providers are called, only as often as the rules allow",
    "not-again": "what is stored already is not paid for again",
    "one-claim": "a step changes hands only by a claim, and only when it is READY",
    "forwards": "no status moves back but by a lease that ran out",
    "fenced": "a worker that lost its claim, or whose lease is over, changes nothing",
    "in-order": "a step begins after the steps it depends on",
    "ends": "every step, and every run, ends once nothing goes wrong any more",
    "finalized": "a worker that lives ends the step it claimed",
    "artifacts": "a SUCCEEDED step has its manifest or report, whole, with everything it names",
    "min-images": "a SUCCEEDED chart step has at least minImages pictures",
    "written-once": "a picture or a report, once stored, stays as it is",
    "sound": "no program and no effect breaks but where it is broken on purpose",
    "secret": "no key, prompt or candidate text is outside its place",
}
_MOVES: Mapping[tuple[str, str], tuple[type, ...]] = {
    ("PENDING", "READY"): (AdvanceFlow,),
    ("READY", "RUNNING"): (ClaimStep,),
    ("RUNNING", "READY"): (AdvanceFlow,),
    ("RUNNING", "SUCCEEDED"): (FinalizeStep,),
    ("RUNNING", "FAILED"): (FinalizeStep, AdvanceFlow),
}
"""Which effects may move a step from where to where."""
_ENDED = {"SUCCEEDED", "FAILED"}


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    promise: str
    what: str

    def __str__(self) -> str:
        """Return one sentence."""
        return f"{self.promise}: {PROMISES[self.promise]}; but {self.what}"


@dataclass(slots=True)
class Invariants:
    """Watches one world."""

    world: World
    broken: list[Violation] = field(default_factory=list)
    _reserved: set[tuple[str, str]] = field(default_factory=set)
    _calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls of providers, by token and subject."""
    _there: dict[str, frozenset[str]] = field(default_factory=dict)
    """What was stored when a token claimed its step."""
    _leases: dict[str, datetime] = field(default_factory=dict)
    """Until when a token holds its step."""

    def _break(self, promise: str, what: str) -> None:
        self.broken.append(Violation(promise, what))

    # Documents.

    def committed(self, path: str, before: Document | None, after: Document) -> None:
        """Check a commit."""
        if path != RUN_PATH:
            self._counted(path, before or {}, after)
            return
        assert before is not None
        if before["status"] in _ENDED and after["status"] != before["status"]:
            self._break("forwards", f"the run went from {before['status']} to {after['status']}")
        steps = before["steps"]
        for step_id, step in after["steps"].items():
            was = steps[step_id]
            if was is not step:
                self._changed(step_id, was, step, after)
        if after["status"] != before["status"] and after["status"] == "SUCCEEDED":
            for step_id, step in after["steps"].items():
                if step["status"] != "SUCCEEDED":
                    self._break("artifacts", f"the run SUCCEEDED while {step_id} is {step['status']}")

    def _changed(self, step_id: str, was: Document, step: Document, flow_run: Document) -> None:
        effect = self.world.effect
        move = (was["status"], step["status"])
        if move[0] == move[1]:
            self._break("one-claim", f"{step_id} was changed while {move[0]}, by {type(effect).__name__}")
            return
        if type(effect) not in _MOVES.get(move, ()):
            self._break("forwards", f"{step_id} went from {move[0]} to {move[1]} by {type(effect).__name__}")
        elif move[1] == "RUNNING":
            self._claimed(step_id, was, step, flow_run)
        elif isinstance(effect, FinalizeStep):
            self._finalized(step_id, was, step, effect)
        elif move[0] == "RUNNING":
            self._left(step_id, was)
        elif unmet := _unmet(step, flow_run):
            self._break("in-order", f"{step_id} is READY while {unmet} has not SUCCEEDED")

    def _claimed(self, step_id: str, was: Document, step: Document, flow_run: Document) -> None:
        claim, earlier = _claim(step), _claim(was)
        token = claim["token"]
        if claim["attempt"] != earlier.get("attempt", 0) + 1 or token == earlier.get("token"):
            self._break("one-claim", f"the claim of {step_id} does not count on from the last one")
        if claim["attempt"] > MAX_ATTEMPTS:
            self._break("attempts", f"{step_id} was claimed {claim['attempt']} times")
        if unmet := _unmet(step, flow_run):
            self._break("in-order", f"{step_id} was claimed while {unmet} has not SUCCEEDED")
        self._there[token] = frozenset(self.world.objects.objects)
        self._leases[token] = datetime.fromisoformat(claim["leaseUntil"])

    def _finalized(self, step_id: str, was: Document, step: Document, effect: FinalizeStep) -> None:
        token = _claim(was)["token"]
        is_recovery = effect.token is None and effect.status == "SUCCEEDED" and was["stepType"] == "LLM_REPORT"
        if self.world.acting.token != token and not is_recovery:
            self._break("fenced", f"{self.world.acting.token} ended {step_id}, which {token} holds")
        if step["status"] == "SUCCEEDED":
            self._whole(step_id, step)
        elif step["error"]["code"] == "CHART_API_LIMIT_EXCEEDED":
            self._dry(step_id, was)

    def _left(self, step_id: str, was: Document) -> None:
        """Check that a step was taken from its worker only after its lease; clocks may differ."""
        world = self.world
        until = parse_moment(_claim(was).get("leaseUntil"))
        if until is None or world.acting.process.now() < until:
            self._break("forwards", f"{step_id} was taken from its worker before its lease was over, at {until}")

    def _dry(self, step_id: str, was: Document) -> None:
        """Check that no account had a call left: by its usage document, or because the provider refused it."""
        world = self.world
        now = world.acting.process.now()
        days = {utc_day(now), utc_day(datetime.fromisoformat(_claim(was)["startedAt"]))}
        for account in world.scenario.charts.accounts:
            usage = world.documents.documents.get(f"chart_img_accounts_usage/{account.id}") or {}
            is_used_up = usage.get("usageToday", 0) >= world.scenario.choices.daily_limit
            is_of_today = parse_moment(usage.get("windowStart")) in days
            is_refused = account.id in world.chart_provider.refused
            if not is_refused and not (is_used_up and is_of_today):
                self._break("quota-used", f"{step_id} failed for lack of quota while {account.id} had some")

    def _counted(self, path: str, before: Document, after: Document) -> None:
        limit = self.world.scenario.choices.daily_limit
        if after["usageToday"] > limit:
            self._break("quota", f"{path} counts {after['usageToday']} of {limit} calls")
        known = before.get("reservations", [])
        for entry in after.get("reservations", [])[-1:]:
            if known[-1:] == [entry]:
                continue
            if (path, entry["id"]) in self._reserved:
                self._break("counted-once", f"reservation {entry['id']} was counted twice in {path}")
            self._reserved.add((path, entry["id"]))

    # Objects.

    def stored(self, uri: str, before: bytes | None, data: bytes) -> None:
        """Check a write."""
        if before is not None and before != data and not uri.endswith("/manifest.json"):
            self._break("written-once", f"{uri} was overwritten")

    def _whole(self, step_id: str, step: Document) -> None:
        match step["stepType"]:
            case "CHART_EXPORT":
                self._whole_charts(step_id, step)
            case "LLM_REPORT":
                self._whole_report(step_id, step)
            case _:
                self._object(step_id, step["outputs"].get("gcs_uri"))

    def _object(self, step_id: str, uri: Any) -> bytes:
        data = self.world.objects.objects.get(uri)
        if data is None:
            self._break("artifacts", f"{step_id} SUCCEEDED, and {uri} is not there")
        return data or b"{}"

    def _whole_charts(self, step_id: str, step: Document) -> None:
        uri = step["outputs"].get("outputsManifestGcsUri")
        if uri == "gs://simulated/before/manifest.json":
            return
        manifest = _parsed(self._object(step_id, uri))
        items = manifest.get("items", [])
        if (manifest.get("runId"), manifest.get("stepId")) != (RUN_ID, step_id):
            self._break("artifacts", f"the manifest of {step_id} is of another step")
        drawn = {item["chartTemplateId"] for item in items}
        if len(drawn) < step["inputs"]["minImages"]:
            self._break("min-images", f"{step_id} SUCCEEDED with {len(drawn)} of {step['inputs']['minImages']}")
        for item in items:
            data = self._object(step_id, item["png_gcs_uri"])
            if data not in self.world.chart_provider.drawn.get(item["chartTemplateId"], ()):
                self._break("artifacts", f"{item['png_gcs_uri']} is not what was drawn")

    def _whole_report(self, step_id: str, step: Document) -> None:
        report = _parsed(self._object(step_id, step["outputs"].get("gcs_uri")))
        said = report.get("output", {}).get("summary", {}).get("markdown", "")
        metadata = report.get("metadata", {})
        if CANDIDATE_TEXT not in said or (metadata.get("runId"), metadata.get("stepId")) != (RUN_ID, step_id):
            self._break("artifacts", f"the report of {step_id} is not what the model wrote")

    # Providers.

    def called_chart(self, effect: CallChartApi, day: int, *, is_too_soon: bool) -> None:
        """Check a call that has just arrived."""
        self._not_fenced("CallChartApi")
        world, account, token = self.world, effect.account_id, self.world.acting.token
        arrived, limit = world.chart_provider.counts[account, day], world.scenario.choices.daily_limit
        if arrived > limit:
            self._break("quota", f"{account} was called {arrived} times of {limit}")
        usage = world.documents.documents.get(f"chart_img_accounts_usage/{account}") or {}
        if usage.get("usageToday", 0) < arrived and self._is_todays(usage, day):
            self._break(
                "counted-first", f"{account} was called {arrived} times, and {usage.get('usageToday')} are counted"
            )
        if is_too_soon and not world.has_skew:
            self._break("pace", f"{account} was called twice within a second")
        subject = effect.chart_template_id
        self._calls[token, subject] += 1
        if self._calls[token, subject] > MAX_ATTEMPTS + 2 * len(world.scenario.charts.accounts):
            self._break("attempts", f"{subject} was asked for {self._calls[token, subject]} times under one claim")
        if any(_is_picture(uri, subject) for uri in self._there.get(token, ())):
            self._break("not-again", f"{subject} was asked for, and is stored")

    def _is_todays(self, usage: Document, day: int) -> bool:
        start = utc_day(self.world.scenario.start)
        window = parse_moment(usage.get("windowStart"))
        return window is None or (window - start).days <= day

    def called_model(self) -> None:
        """Check a call that has just arrived."""
        self._not_fenced("CallModel")
        token = self.world.acting.token
        self._calls[token, "model"] += 1
        if self._calls[token, "model"] > 2:  # noqa: PLR2004 - the question and the one repair
            self._break("attempts", f"the model was asked {self._calls[token, 'model']} times under one claim")
        if any(uri.endswith("/report.json") for uri in self._there.get(token, ())):
            self._break("not-again", "the model was asked, and the report is stored")

    # Runs of programs.

    def broke(self, what: str) -> None:
        """Take note of an exception that no fault stands for."""
        self._break("sound", what)

    def begun(self, active: Active, effect: Effect) -> None:
        """Check that a worker whose lease is over begins nothing more."""
        lease_until = self._leases.get(active.token)
        if lease_until is not None and active.process.now() >= lease_until:
            self._break("fenced", f"{active.token} began {type(effect).__name__} after its lease")

    def _not_fenced(self, what: str) -> None:
        """Check that nobody pays for a step that is another's by now."""
        active = self.world.acting
        lease_until = self._leases.get(active.token)
        if lease_until is not None and active.process.now() >= lease_until:
            self._break("fenced", f"{active.token} made {what} after its lease")

    def ended(self, active: Active) -> None:
        """Check that a worker that lives, and knows of its claim, has ended its step."""
        if not active.token:
            return
        state = active.run.state
        for step_id, step in self.world.documents.documents[RUN_PATH]["steps"].items():
            if step["status"] != "RUNNING" or _claim(step).get("token") != active.token:
                continue
            lease_until = parse_moment(_claim(step)["leaseUntil"])
            is_over = lease_until is not None and active.process.now() >= lease_until
            is_unknown = getattr(getattr(state, "result", None), "is_claim_unknown", False) or getattr(
                state, "is_claim_unknown", False
            )
            most = 1 if active.process.kind == "given" else MAX_FINALIZE_TRIES
            if not is_over and not is_unknown and active.failed_finalizes < most:
                self._break("finalized", f"{active.token} stopped, and {step_id} is RUNNING under its claim")

    def never_ended(self) -> None:
        """Take note that the run is not over though nothing goes wrong any more."""
        steps = self.world.documents.documents[RUN_PATH]["steps"]
        statuses = ", ".join(f"{step_id} is {step['status']}" for step_id, step in steps.items())
        self._break("ends", f"two hours later {statuses}")

    def at_the_end(self) -> None:
        """Check what is left."""
        world = self.world
        flow_run = world.documents.documents[RUN_PATH]
        if flow_run["status"] not in _ENDED:
            self.never_ended()
        for step_id, step in flow_run["steps"].items():
            if step["status"] == "SUCCEEDED":
                self._whole(step_id, step)
            elif step["status"] in {"READY", "RUNNING"} and flow_run["status"] == "SUCCEEDED":
                self._break("ends", f"{step_id} is {step['status']}")
        self._secret(RUN_PATH, json.dumps(flow_run), TEXTS)
        for uri, data in world.objects.objects.items():
            if uri.endswith("/manifest.json"):
                self._secret(uri, data.decode(), TEXTS)
            elif uri.endswith("/report.json"):
                self._secret(uri, data.decode(), TEXTS[:3])

        if world.log is not None:
            self._secret("the log", "\n".join(world.log.lines), TEXTS)

    def _secret(self, where: str, text: str, texts: tuple[str, ...]) -> None:
        for one in texts:
            if one in text:
                self._break("secret", f"{where} has {one!r}")


def _claim(step: Document) -> dict[str, Any]:
    claim: dict[str, Any] = step["outputs"].get("execution", {}).get("claim", {})
    return claim


def _unmet(step: Document, flow_run: Document) -> str | None:
    return next((one for one in step["dependsOn"] if flow_run["steps"][one]["status"] != "SUCCEEDED"), None)


def _is_picture(uri: str, chart_template_id: str) -> bool:
    return uri.startswith(f"gs://{BUCKET}/charts/") and uri.endswith(f"_{chart_template_id}.png")


@lru_cache(maxsize=256)
def _parsed(data: bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(data)
    return parsed
