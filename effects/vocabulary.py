"""The two unions that every interpreter must cover, and the outcome that any effect can have.

Owns `Effect`, `Outcome` and `EffectFailed`. Must not know who decides or who performs.
"""

from __future__ import annotations

from datetime import datetime

from effects.accounts import (
    AccountExhausted,
    AccountSetAside,
    AccountsExhausted,
    AccountsReserved,
    ExhaustAccount,
    ReserveAccount,
    SetAccountAside,
)
from effects.calls import (
    CallChartApi,
    ChartRefused,
    ChartRendered,
    LoadTemplates,
    RecordReply,
    ReplyRecorded,
    TemplatesLoaded,
)
from effects.flows import AdvanceFlow, FindFlowRuns, FlowAdvanced, FlowRunsFound, FlowUnchanged
from effects.models import (
    CallModel,
    LoadPrompt,
    LoadSchema,
    ModelAnswered,
    ModelRefused,
    PromptLoaded,
    SchemaLoaded,
)
from effects.objects import (
    ListObjects,
    ObjectNotRead,
    ObjectNotStored,
    ObjectRead,
    ObjectsListed,
    ObjectStored,
    PutObject,
    ReadObject,
)
from effects.steps import ClaimLost, ClaimStep, FinalizeLost, FinalizeStep, StepClaimed, StepFinalized
from effects.timing import Wait, Waited
from effects.word import word

Effect = (
    FindFlowRuns
    | AdvanceFlow
    | ClaimStep
    | ListObjects
    | ReadObject
    | LoadTemplates
    | LoadPrompt
    | LoadSchema
    | ReserveAccount
    | Wait
    | CallChartApi
    | CallModel
    | ExhaustAccount
    | SetAccountAside
    | RecordReply
    | PutObject
    | FinalizeStep
)


@word
class EffectFailed:
    """An effect ended in a way nobody foresaw."""

    effect: Effect
    """The effect."""
    error_type: str
    """Type of the exception."""
    message: str
    """What the exception said; bounded and without keys."""
    at: datetime
    """When it happened."""


Outcome = (
    FlowRunsFound
    | FlowAdvanced
    | FlowUnchanged
    | StepClaimed
    | ClaimLost
    | TemplatesLoaded
    | PromptLoaded
    | SchemaLoaded
    | AccountsReserved
    | AccountsExhausted
    | Waited
    | ChartRendered
    | ChartRefused
    | ModelAnswered
    | ModelRefused
    | AccountExhausted
    | AccountSetAside
    | ReplyRecorded
    | ObjectStored
    | ObjectNotStored
    | ObjectsListed
    | ObjectRead
    | ObjectNotRead
    | StepFinalized
    | FinalizeLost
    | EffectFailed
)
