"""Flags and settings that all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Else gRPC writes lines of its own between the dots; it looks at this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

settings.register_profile(
    "project", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what is, where a golden file says otherwise"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-golden") and os.environ.get("CI") == "true":
        message = "--update-golden is refused where CI=true: golden files are updated by people"
        raise pytest.UsageError(message)
