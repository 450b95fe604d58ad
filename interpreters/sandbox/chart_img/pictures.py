"""The pictures the server answers with.

Owns drawing each only once in a process. Must not know who asks; drawing needs Pillow, which is imported only here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

_KEPT = 512


class DrawingUnavailable(RuntimeError):  # noqa: N818 - a state of the installation
    """Pillow is not installed."""

    def __init__(self) -> None:
        """Say what to do."""
        super().__init__("the sandbox draws charts with Pillow: pip install 'tda-workers[drawing]'")


def check_drawing() -> None:
    """Refuse to go on where nothing can be drawn."""
    _drawing()


def picture_of(body: Mapping[str, Any]) -> bytes:
    """Return the picture of a chart, as PNG."""
    return _drawn(json.dumps(body, sort_keys=True))


@lru_cache(_KEPT)
def _drawn(body: str) -> bytes:
    return _drawing()(json.loads(body))


def _drawing() -> Callable[[Mapping[str, object]], bytes]:
    try:
        from fixtures.drawing import draw_chart  # noqa: PLC0415 - Pillow is optional
    except ImportError as error:
        raise DrawingUnavailable from error
    return draw_chart
