"""Who plays in a simulated world: the programs, the rules and the policies, which are those of production unless one is sabotaged.

Owns the list of what can be exchanged. Must not know the world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.charts.program import CHART_EXPORT
from core.documents import Decision, Documents
from core.flow.given import GIVEN
from core.flow.orchestrator import ADVANCE_FLOW
from core.flow.reaper import REAP
from core.program import Program
from core.reports.program import LLM_REPORT
from core.rules import paths_of
from effects import Effect, LeasePolicy, Outcome
from effects.word import replace
from interpreters.performers import Interpreter
from interpreters.runtime import Perform
from interpreters.simulation.scenarios import MAX_ATTEMPTS

AnyRule = Callable[[Documents, Any, datetime], Decision[Any]]

PROGRAMS: Mapping[str, Program[Any, Any]] = {
    "charts": CHART_EXPORT,
    "reports": LLM_REPORT,
    "given": GIVEN,
    "orchestrator": ADVANCE_FLOW,
    "reaper": REAP,
}
LEASES = LeasePolicy(max_attempts=MAX_ATTEMPTS)
REAPING = LeasePolicy(max_attempts=MAX_ATTEMPTS, retell_after_seconds=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who plays."""

    programs: Mapping[str, Program[Any, Any]] = field(default_factory=lambda: PROGRAMS)
    rules: Mapping[type, AnyRule] = field(default_factory=dict)
    """Rules in the place of the real ones, by effect."""
    leases: LeasePolicy = LEASES
    reaping: LeasePolicy = REAPING
    hides_keys: bool = True
    around: Callable[[Perform], Perform] | None = None
    """Something between the programs and the performers."""


PRODUCTION = Cast()


@dataclass(frozen=True, kw_only=True)
class ExchangedRules(Interpreter):
    """The performers of production, where some rules may be others."""

    rules: Mapping[type, AnyRule]

    def perform_transaction(self, effect: Effect) -> Outcome:
        """Commit what the effect's rule decides."""
        rule = self.rules.get(type(effect))
        if rule is None:
            return super().perform_transaction(effect)
        outcome: Outcome = self.documents.transact(
            paths_of(effect), lambda documents: rule(documents, effect, self.clock.now())
        )
        return replace(outcome, at=self.clock.now())
