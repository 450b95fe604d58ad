"""The vocabulary: what should happen (effects) and what did happen (outcomes).

One import for all words; each is defined, field by field, in the module named after its subject.
"""

from effects.accounts import (
    AccountAssignment,
    AccountExhausted,
    AccountNeed,
    AccountPolicy,
    AccountSetAside,
    AccountsExhausted,
    AccountsReserved,
    ExhaustAccount,
    HeldAccount,
    ReserveAccount,
    SetAccountAside,
    UnassignedRequest,
)
from effects.calls import (
    CallChartApi,
    ChartRefused,
    ChartRendered,
    ChartsApiMode,
    LoadTemplates,
    RecordReply,
    ReplyRecorded,
    TemplatesLoaded,
)
from effects.objects import ObjectNotStored, ObjectStored, PutObject
from effects.steps import (
    ClaimLost,
    ClaimStep,
    FinalizeLost,
    FinalizeStep,
    StepClaimed,
    StepError,
    StepFinalized,
    TerminalStatus,
)
from effects.timing import Wait, Waited, WaitReason
from effects.vocabulary import Effect, EffectFailed, Outcome
from effects.word import HOPED_BLOB, Blob, Document, blob

__all__ = [
    "HOPED_BLOB",
    "AccountAssignment",
    "AccountExhausted",
    "AccountNeed",
    "AccountPolicy",
    "AccountSetAside",
    "AccountsExhausted",
    "AccountsReserved",
    "Blob",
    "CallChartApi",
    "ChartRefused",
    "ChartRendered",
    "ChartsApiMode",
    "ClaimLost",
    "ClaimStep",
    "Document",
    "Effect",
    "EffectFailed",
    "ExhaustAccount",
    "FinalizeLost",
    "FinalizeStep",
    "HeldAccount",
    "LoadTemplates",
    "ObjectNotStored",
    "ObjectStored",
    "Outcome",
    "PutObject",
    "RecordReply",
    "ReplyRecorded",
    "ReserveAccount",
    "SetAccountAside",
    "StepClaimed",
    "StepError",
    "StepFinalized",
    "TemplatesLoaded",
    "TerminalStatus",
    "UnassignedRequest",
    "Wait",
    "WaitReason",
    "Waited",
    "blob",
]
