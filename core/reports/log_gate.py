"""The log gate: what may be said of a report in a log (4.29, 4.30).

Owns the rule: prompt and candidate text become size and SHA-256, a key is dropped and never hashed. Every event of a report passes it, so that a
field added without thought cannot leak. Must not know any event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from core.events import LogEvent
from core.secrets import Secret
from effects import Blob
from effects.word import replace

_TEXTS = frozenset(
    {
        "systeminstruction", "system", "userprompt", "user", "userinput", "prompt", "text", "parts", "contents",
        "content", "candidates", "candidate", "response", "output", "summary", "details", "markdown", "answer",
    }
)  # fmt: skip
"""Names of fields, in lower case, whose values are prompt or candidate text."""
_KEYS = ("apikey", "api_key", "key", "secret", "token", "authorization", "x-goog-api-key")


def through_gate(event: LogEvent) -> LogEvent:
    """Return the event as it may be written."""
    return replace(event, fields=_safe_fields(event.fields))


def _safe_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _safe(name, value)
        for name, value in fields.items()
        if name.lower() not in _KEYS and not isinstance(value, Secret)
    }


def _safe(name: str, value: Any) -> Any:
    if isinstance(value, Blob):
        return {"bytes": value.size, "sha256": value.sha256}
    if name.lower() in _TEXTS and value is not None:
        return _hashed(value)
    if isinstance(value, Mapping):
        return _safe_fields(value)
    return [_safe("", one) for one in value] if isinstance(value, list | tuple) else value


def _hashed(value: Any) -> dict[str, Any]:
    data = (value if isinstance(value, str) else repr(value)).encode("utf-8", "surrogatepass")
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
