"""Which pure rule decides which compare-and-set effect, and on which documents.

Owns the table that stores, dry-run and simulation share. Must not know how a commit is made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from core.charts.usage import exhaust_account, reserve_accounts, usage_path
from core.documents import Decision, Documents
from core.flow.advance import advance_flow
from core.flow.claims import claim_step, finalize_step
from effects import AdvanceFlow, ClaimStep, Effect, ExhaustAccount, FinalizeStep, Outcome, ReserveAccount

RULES: dict[type, Callable[[Documents, Any, datetime], Decision[Outcome]]] = {
    AdvanceFlow: advance_flow,
    ClaimStep: claim_step,
    ReserveAccount: reserve_accounts,
    ExhaustAccount: exhaust_account,
    FinalizeStep: finalize_step,
}

_PATHS: dict[type, Callable[[Any], tuple[str, ...]]] = {
    AdvanceFlow: lambda effect: (effect.flow_run,),
    ClaimStep: lambda effect: (effect.flow_run,),
    ReserveAccount: lambda effect: tuple(
        usage_path(effect.usage_collection, account.id) for account in effect.accounts
    ),
    ExhaustAccount: lambda effect: (usage_path(effect.usage_collection, effect.account.id),),
    FinalizeStep: lambda effect: (effect.flow_run,),
}


def paths_of(effect: Effect) -> tuple[str, ...]:
    """Return the paths of the documents that decide the effect."""
    return _PATHS[type(effect)](effect)


def decide(documents: Documents, effect: Effect, now: datetime) -> Decision[Outcome]:
    """Return what the effect's rule decides on these documents."""
    return RULES[type(effect)](documents, effect, now)
