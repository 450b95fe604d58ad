"""Flags and settings that all tests share."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Else gRPC writes lines of its own between the dots; it looks at this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# A shell starts what it puts into the background with SIGINT ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HEAVY = (
    "cattrs", "functions_framework", "google.cloud.firestore", "google.cloud.storage", "google.events.cloud.firestore_v1",
    "google.genai", "jsonschema", "PIL.Image", "requests", "returns.result", "rich.progress",
)  # fmt: skip

LONGEST = (
    "test_service_faults.py", "test_service_report.py", "test_sandbox_flow.py", "test_service_flow.py",
    "test_service_delivery.py", "test_service_lifecycle.py", "test_report_commands.py",
)  # fmt: skip
"""Files that a worker should not begin with when the others are done; any order is right, this one is quick."""

QUIET: dict[str, Any] = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("project", max_examples=60, **QUIET)
# Coverage makes everything three times slower, and a line is covered by the first example that gets there.
settings.register_profile("covering", max_examples=4, **QUIET)
settings.load_profile("project")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what is, where a golden file says otherwise"
    )


def pytest_configure(config: pytest.Config) -> None:
    is_controller = bool(config.getoption("numprocesses", default=None)) and not hasattr(config, "workerinput")
    if config.getoption("typeguard_packages", default=None) and not is_controller:
        # What an instrumented module imports first, typeguard's loader compiles again: so it is not the first.
        for name in HEAVY:
            import_module(name)
    if config.getoption("--update-golden") and os.environ.get("CI") == "true":
        message = "--update-golden is refused where CI=true: golden files are updated by people"
        raise pytest.UsageError(message)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
