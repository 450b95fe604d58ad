"""Stops the zygotes that the processes under test came from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.zygote import stop_zygotes


@pytest.fixture(scope="session", autouse=True)
def _zygotes() -> Iterator[None]:
    yield
    stop_zygotes()
