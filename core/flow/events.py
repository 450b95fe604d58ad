"""Log events about steps and runs: selected, claimed, completed, moved on.

Owns their names and fields. Must not know what kind of work the step is.
"""

from __future__ import annotations

from core.events import LogEvent, Severity
from core.flow.selection import unmet_dependencies
from effects import (
    ClaimLost,
    ClaimStep,
    Effect,
    EffectFailed,
    FieldChange,
    FinalizeLost,
    FinalizeStep,
    FlowAdvanced,
    Outcome,
    StepClaimed,
    StepFinalized,
)


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


def orchestrator_events(effect: Effect, outcome: Outcome) -> tuple[LogEvent, ...]:
    """Return what the log says when a flow_run was moved on, or could not be."""
    if isinstance(outcome, EffectFailed):
        return (effect_failed(outcome),)
    if not isinstance(outcome, FlowAdvanced):
        return ()
    run_id = outcome.flow_run.rpartition("/")[2]
    moved = (_moved(run_id, change) for change in outcome.changes)
    return tuple(event for event in moved if event is not None)


def _moved(run_id: str, change: FieldChange) -> LogEvent | None:
    match change.path:
        case ("steps", step_id, "status"):
            name, severity = _MOVES[change.before, change.after]
            message = f"{step_id} {change.before} -> {change.after}: {change.why}"
            fields = {"runId": run_id, "stepId": step_id, "status": change.after, "reason": change.why}
            return LogEvent(name, message, severity, fields)
        case ("status",):
            message = f"run {run_id} {change.before} -> {change.after}: {change.why}"
            fields = {"runId": run_id, "status": change.after, "reason": change.why}
            severity = "ERROR" if change.after == "FAILED" else "INFO"
            return LogEvent("flow_run_status_changed", message, severity, fields)
        case _:
            return None


_MOVES: dict[tuple[str, str], tuple[str, Severity]] = {
    ("PENDING", "READY"): ("step_promoted", "INFO"),
    ("RUNNING", "READY"): ("step_returned", "WARNING"),
    ("RUNNING", "FAILED"): ("step_abandoned", "ERROR"),
}


def given_step_events(effect: Effect, outcome: Outcome) -> tuple[LogEvent, ...]:
    """Return what the log says of a step that gets the file someone brought."""
    match effect, outcome:
        case _, EffectFailed():
            return (effect_failed(outcome),)
        case ClaimStep(), StepClaimed():
            return claim_succeeded(effect, outcome)
        case ClaimStep(), ClaimLost():
            return claim_lost(effect, outcome)
        case FinalizeStep(), StepFinalized():
            code = effect.error.code if effect.error else None
            fields = {"stepId": effect.step_id, "status": outcome.status, "errorCode": code, **effect.outputs}
            message = f"{effect.step_id} {outcome.status}, given"
            return (LogEvent("step_completed", message, "ERROR" if code else "INFO", fields),)
        case FinalizeStep(), FinalizeLost():
            return finalize_lost(effect, outcome)
        case _:
            return ()
