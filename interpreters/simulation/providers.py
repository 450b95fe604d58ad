"""The other side: Chart-IMG and the model, as they would count and answer.

Owns what the providers know and we do not: calls that arrived, keys that are taken no more, pictures that were drawn. Must not know
what our side has counted.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from core.charts.answers import Answer, NoAnswer
from core.reports.answers import NoReply, Reply
from effects import CallChartApi, CallModel
from interpreters.simulation.faults import Fault
from interpreters.simulation.scenarios import (
    CANDIDATE_TEXT,
    CHART_KEY,
    MODEL_KEY,
    PROMPT_TEXT,
    Choices,
    picture,
)

if TYPE_CHECKING:
    from interpreters.simulation.world import World

SECOND = 1_000_000
"""In microseconds, the world's unit of time."""


@dataclass(slots=True)
class ChartProvider:
    """Chart-IMG."""

    world: World
    choices: Choices
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Calls that arrived, by account and day."""
    full: set[tuple[str, int]] = field(default_factory=set)
    """Accounts that were told so, and the day."""
    revoked: set[str] = field(default_factory=set)
    drawn: dict[str, list[bytes]] = field(default_factory=dict)
    """All pictures, by chartTemplateId."""
    _last: dict[str, int] = field(default_factory=dict)
    """When each account called last."""

    def __post_init__(self) -> None:
        if self.choices.used and not self.choices.used_yesterday:
            self.counts["acc1", 0] = self.choices.used

    @property
    def refused(self) -> set[str]:
        """Return the accounts that the provider would not, or did not, serve."""
        return self.revoked | {account for account, _ in self.full}

    def ask(self, effect: CallChartApi) -> Answer | NoAnswer:
        """Take one call."""
        world, account = self.world, effect.account_id
        fault = world.fault
        if fault is Fault.BROKEN:
            raise OSError
        if fault is Fault.TRANSIENT:
            return NoAnswer(kind="network", message="connection reset")
        if fault is Fault.KEY_REVOKED:
            self.revoked.add(account)
        if account in self.revoked:
            return _said(401, "Invalid Key")
        day = world.day_of_call()
        self.counts[account, day] += 1
        is_too_soon = world.now - self._last.get(account, -SECOND) < SECOND
        self._last[account] = world.now
        world.invariants.called_chart(effect, day, is_too_soon=is_too_soon)
        if fault is Fault.LIMIT_SAID:
            self.full.add((account, day))
        is_over = self.counts[account, day] > self.choices.daily_limit
        if is_too_soon or is_over or (account, day) in self.full:
            return _said(429, "Limit Exceeded")
        return self._drawn(effect, fault)

    def _drawn(self, effect: CallChartApi, fault: Fault | None) -> Answer | NoAnswer:
        if fault is Fault.SERVER_ERROR:
            return _said(500, "Internal Error")
        if fault is Fault.GARBAGE:
            return Answer(status=200, body=f"<html>{CHART_KEY}</html>".encode())
        pictures = self.drawn.setdefault(effect.chart_template_id, [])
        pictures.append(picture(f"{effect.chart_template_id} {len(pictures)}"))
        if fault is Fault.TIMEOUT:
            return NoAnswer(kind="timeout", message="no answer")
        return Answer(status=200, body=pictures[-1])


def _said(status: int, message: str) -> Answer:
    """Return an error that quotes the key, as providers do."""
    return Answer(status=status, body=json.dumps({"message": f"{message} for {CHART_KEY}-1"}).encode())


@dataclass(slots=True)
class ModelProvider:
    """The language model."""

    world: World
    calls: int = 0

    def ask(self, effect: CallModel) -> Reply | NoReply:  # noqa: ARG002
        """Take one call."""
        fault = self.world.fault
        if fault is Fault.BROKEN:
            raise OSError
        if fault is Fault.TRANSIENT:
            return NoReply(kind="network", message=f"connection reset: {PROMPT_TEXT}")
        self.calls += 1
        self.world.invariants.called_model()
        if fault is Fault.TIMEOUT:
            return NoReply(kind="timeout", message="no answer")
        if fault is Fault.LIMIT_SAID:
            said = f"too many: {MODEL_KEY}"
            return NoReply(kind="http", http_status=429, status="RESOURCE_EXHAUSTED", message=said)
        if fault is Fault.SERVER_ERROR:
            return NoReply(kind="http", http_status=503, status="UNAVAILABLE", message=f"later: {PROMPT_TEXT}")
        return Reply(_response(self.calls, fault))


@lru_cache(maxsize=64)
def _response(number: int, fault: Fault | None) -> bytes:
    output: dict[str, object] = {"summary": {"markdown": f"{CANDIDATE_TEXT} {number}"}, "details": {}}
    if fault is Fault.OUTPUT_INVALID:
        output = {"summary": CANDIDATE_TEXT}
    text = CANDIDATE_TEXT if fault is Fault.GARBAGE else json.dumps(output)
    is_blocked = fault is Fault.OUTPUT_BLOCKED
    candidate = {
        "content": {"parts": [] if is_blocked else [{"text": text}]},
        "finishReason": "SAFETY" if is_blocked else "STOP",
    }
    return json.dumps({"candidates": [candidate], "modelVersion": "simulated-1"}).encode()
