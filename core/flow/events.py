"""Log events about steps: selected, claimed, completed.

Owns their names and fields. Must not know what kind of work the step is.
"""

from __future__ import annotations

from core.events import LogEvent
from core.flow.selection import unmet_dependencies
from effects import ClaimLost, ClaimStep, EffectFailed, FinalizeLost, FinalizeStep, StepClaimed


def step_selected(effect: ClaimStep) -> tuple[LogEvent, ...]:
    """Return the event of a step about to be claimed."""
    return (LogEvent("ready_step_selected", f"taking step {effect.step_id}", fields={"stepId": effect.step_id}),)


def claim_succeeded(effect: ClaimStep, outcome: StepClaimed) -> tuple[LogEvent, ...]:
    """Return the event of a claim, and a warning where the step's dependencies are not met."""
    fields = {"stepId": effect.step_id, "claimed": True, "attempt": outcome.attempt}
    claimed = LogEvent("claim_attempt", f"claimed {effect.step_id}, attempt {outcome.attempt}", fields=fields)
    unmet = unmet_dependencies(outcome.flow_run, effect.step_id)
    if not unmet:
        return (claimed,)
    message = f"{effect.step_id} is READY though it depends on {', '.join(unmet)}"
    return claimed, LogEvent("dependencies_unmet", message, "WARNING", {"dependsOn": list(unmet)})


def claim_lost(effect: ClaimStep, outcome: ClaimLost) -> tuple[LogEvent, ...]:
    """Return the event of a claim that was not to be had."""
    fields = {"stepId": effect.step_id, "claimed": False, "reason": outcome.reason}
    return (LogEvent("claim_attempt", f"did not claim {effect.step_id}: {outcome.reason}", fields=fields),)


def finalize_lost(effect: FinalizeStep, outcome: FinalizeLost) -> tuple[LogEvent, ...]:
    """Return the event of a step that was another's when it was to be ended."""
    message = f"{effect.step_id} is no longer ours: {outcome.reason}; nothing was written"
    return (LogEvent("finalize_lost", message, "WARNING", {"reason": outcome.reason}),)


def effect_failed(outcome: EffectFailed) -> LogEvent:
    """Return the event of an effect that ended in a way nobody foresaw."""
    name = type(outcome.effect).__name__
    return LogEvent(
        "effect_failed",
        f"{name} failed unexpectedly: {outcome.error_type}: {outcome.message}",
        "ERROR",
        {"effect": name, "errorType": outcome.error_type},
    )
