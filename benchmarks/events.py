"""The events that benchmarks send: changes of a flow_run of many steps, in which no step is to be taken.

Owns their documents and their form on the wire. Most steps of the document before the change are READY; of the document
after it, which alone counts, a chart step is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudevents.http import CloudEvent
from google.cloud.firestore_v1 import _helpers
from google.cloud.firestore_v1.types import Document as StoredDocument
from google.events.cloud.firestore_v1 import Document, DocumentEventData, DocumentMask

from interpreters.sandbox.eventarc import UPDATED

RUN_ID = "20251215-102530_BTCUSDT_k3f7a"
ATTRIBUTES = {
    "id": "benchmark",
    "source": "//firestore.googleapis.com/projects/benchmark/databases/(default)",
    "type": UPDATED,
    "subject": f"documents/flow_runs/{RUN_ID}",
    "specversion": "1.0",
}
_TYPES = ("OHLCV_EXPORT", "CHART_EXPORT", "CHART_EXPORT", "LLM_REPORT")


def payload(steps: int) -> bytes:
    """Return the body of the event of a document of so many steps."""
    value, old_value = flow_run(steps, "SUCCEEDED"), flow_run(steps, "READY")
    event = DocumentEventData(
        value=_document(value), old_value=_document(old_value), update_mask=DocumentMask(field_paths=["steps"])
    )
    return bytes(DocumentEventData.serialize(event))


def event(body: bytes) -> CloudEvent:
    """Return the event as functions-framework hands it over."""
    return CloudEvent(ATTRIBUTES, body)


def headers() -> dict[str, str]:
    """Return the headers of the event over HTTP."""
    return {**{f"ce-{name}": value for name, value in ATTRIBUTES.items()}, "content-type": "application/protobuf"}


def flow_run(steps: int, status: str) -> dict[str, Any]:
    """Return a flow_run whose steps all have the status, with what workers write into them."""
    return {
        "schemaVersion": 1,
        "runId": RUN_ID,
        "flowKey": "scheduled_month_week_report_v1",
        "status": "RUNNING",
        "createdAt": "2025-12-15T10:25:30Z",
        "trigger": {"type": "SCHEDULER", "source": "benchmark"},
        "scope": {"symbol": "BTCUSDT"},
        "steps": {_step_id(number): _step(number, status) for number in range(steps)},
    }


def _step_id(number: int) -> str:
    return f"{_TYPES[number % len(_TYPES)].lower()}:4h:{number:04}"


def _step(number: int, status: str) -> dict[str, Any]:
    step_id = _step_id(number)
    claim = {
        "token": "0123456789abcdef0123456789abcdef",
        "attempt": 1,
        "startedAt": "2025-12-15T10:25:30Z",
        "firstStartedAt": "2025-12-15T10:25:30Z",
        "leaseUntil": "2025-12-15T10:35:30Z",
    }
    uri = f"gs://bucket/charts/{RUN_ID}/{step_id}/manifest.json"
    return {
        "stepType": _TYPES[number % len(_TYPES)],
        "status": status,
        "timeframe": "4h",
        "createdAt": "2025-12-15T10:25:30Z",
        "finishedAt": "2025-12-15T10:26:30Z",
        "dependsOn": [_step_id(number - 1)] if number else [],
        "inputs": {"minImages": 2, "requests": [{"chartTemplateId": "ctpl_price_ma1226_vol_v1"}] * 3},
        "outputs": {"outputsManifestGcsUri": uri, "execution": {"claim": claim}},
    }


def _document(fields: Mapping[str, Any]) -> Document:
    name = f"projects/benchmark/databases/(default)/documents/flow_runs/{RUN_ID}"
    stored = StoredDocument(name=name, fields=_helpers.encode_dict(dict(fields)))
    converted: Document = Document.deserialize(StoredDocument.serialize(stored))
    return converted
