"""Gemini's generateContent in the sandbox, with faults to ask for."""

from interpreters.sandbox.gemini.faults import (
    BROKEN_JSON,
    CUT_OFF,
    NO_TEXT,
    RATE_LIMITED,
    SAFETY,
    SERVER_ERROR,
    WRONG_SHAPE,
    ModelFault,
)
from interpreters.sandbox.gemini.server import GeminiServer

__all__ = [
    "BROKEN_JSON",
    "CUT_OFF",
    "NO_TEXT",
    "RATE_LIMITED",
    "SAFETY",
    "SERVER_ERROR",
    "WRONG_SHAPE",
    "GeminiServer",
    "ModelFault",
]
