"""Words about language models: instructions, schemas, and calls.

Owns what is asked of a model and what came back. Texts travel as `Blob`: shown as size and SHA-256, never as themselves. Must not
know any key, nor what a report is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from effects.word import Blob, word

ModelApiMode = Literal["real", "mock", "record"]
ModelCallPurpose = Literal["primary", "repair"]


@word
class LoadPrompt:
    """Read the instructions for the model."""

    prompt_id: str
    """Id of the prompt document."""


@word
class PromptLoaded:
    """The instructions, if there are any of this id."""

    content: Blob | None
    """The document as JSON; None where there is none."""
    at: datetime
    """When it happened."""


@word
class LoadSchema:
    """Read the schema that the model's output must match."""

    schema_id: str
    """Id of the schema document."""


@word
class SchemaLoaded:
    """The schema, if there is one of this id."""

    content: Blob | None
    """The document as JSON; None where there is none."""
    at: datetime
    """When it happened."""


@word
class CallModel:
    """Ask the model once."""

    purpose: ModelCallPurpose
    """The first question, or the one repair of its answer."""
    model: str
    """Name of the model."""
    mode: ModelApiMode
    """Where answers come from."""
    replay: bool
    """Answer from a recording, not from the model."""
    fixture_key: str | None
    """Name of the recording, without ending; None where there are none."""
    system: Blob
    """The system instruction, UTF-8."""
    user: Blob
    """The user content, UTF-8."""
    images: tuple[Blob, ...]
    """Pictures attached, as PNG."""
    generation: Mapping[str, Any]
    """Generation settings by the names of the API, e.g. temperature."""
    json_schema: Mapping[str, Any]
    """What the output must match."""
    timeout_seconds: float
    """How long the call may take."""
    ends_by: datetime
    """When it must have ended, whatever the timeout."""


@word
class ModelAnswered:
    """The model's answer, whatever it is worth."""

    purpose: ModelCallPurpose
    """Of which question."""
    response: Blob
    """The provider's response as JSON."""
    duration_ms: int
    """How long it took."""
    at: datetime
    """When it happened."""


@word
class ModelRefused:
    """There was no answer, or an error."""

    purpose: ModelCallPurpose
    """Of which question."""
    kind: Literal["http", "timeout", "network", "fixture_missing"]
    """What went wrong."""
    http_status: int | None
    """HTTP status of an error, if there was one."""
    status: str | None
    """The provider's name for it, e.g. RESOURCE_EXHAUSTED."""
    message: str
    """What was said; bounded, without keys."""
    duration_ms: int
    """How long it took."""
    at: datetime
    """When it happened."""
