"""Keeps each of these modules on one worker: their module-wide fixtures start processes, which is dear to do twice."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == _HERE and item.path.stem != "test_chart_api_http":
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
