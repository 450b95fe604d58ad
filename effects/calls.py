"""Words about chart templates and the Chart-IMG API.

Owns loading templates, drawing a chart, and recording an answer as a fixture. Must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from effects.word import Blob, Document, word

ChartsApiMode = Literal["real", "mock", "record"]

RefusalKind = Literal["answer", "bad_answer", "network", "timeout", "fixture_missing", "slot_missed"]


@word
class LoadTemplates:
    """Read chart templates by id."""

    chart_template_ids: tuple[str, ...]
    """The ids, in request order."""


@word
class TemplatesLoaded:
    """What was found of them."""

    templates: Mapping[str, Document]
    """Template documents by id; a missing one is absent."""
    unreadable: Mapping[str, str]
    """What is wrong with those that exist and are not JSON objects, by id."""
    at: datetime
    """When it happened."""


@word
class CallChartApi:
    """Ask for one chart, once."""

    chart_template_id: str
    """The request it is for."""
    account_id: str
    """The account whose key goes with it."""
    mode: ChartsApiMode
    """The mode the step runs in."""
    replay: bool
    """Answer from a fixture, without HTTP."""
    fixture_key: str | None
    """Name of the fixture, without ending; None in real mode."""
    timeframe: str
    """The step's timeframe."""
    body: Mapping[str, Any]
    """The JSON body of the request."""
    start_by: datetime
    """When it must have started, or not be made at all: its slot, or the day it is counted in, is over."""
    timeout_seconds: float
    """How long the call may take."""
    ends_by: datetime
    """When it must have ended in any case: the reserve for finalizing begins."""


@word
class ChartRendered:
    """A PNG arrived."""

    chart_template_id: str
    """The request it is for."""
    account_id: str
    """The account it was counted on."""
    image: Blob
    """The picture."""
    duration_ms: int
    """How long the call took."""
    at: datetime
    """When the last byte arrived."""


@word
class ChartRefused:
    """No picture came of the call."""

    chart_template_id: str
    """The request it is for."""
    account_id: str
    """The account it was counted on."""
    kind: RefusalKind
    """An error answer, an answer that is no picture, no answer, no fixture, or too late to ask."""
    http_status: int | None
    """Status of the answer, where there was one."""
    message: str
    """What the provider, or the network, said; bounded and without keys."""
    body: str | None
    """Body of an error answer, bounded and without keys; recorded as a fixture."""
    duration_ms: int
    """How long the call took."""
    at: datetime
    """When it happened."""


@word
class RecordReply:
    """Keep the final answer of a request as a fixture."""

    fixture_name: str
    """File name with its ending."""
    content: Blob
    """The PNG, or the error as JSON."""


@word
class ReplyRecorded:
    """The fixture is there."""

    fixture_name: str
    """File name with its ending."""
    at: datetime
    """When it happened."""
