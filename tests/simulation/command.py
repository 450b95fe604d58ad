"""Calls `tda simulate` in this process. Asserts nothing."""

from __future__ import annotations

import json
import shlex
from typing import Any

from click.testing import CliRunner, Result

from cli import tda


def simulate(*flags: str) -> Result:
    """Call it, with one process unless told otherwise."""
    return CliRunner().invoke(tda, ["simulate", *flags, *(() if "--jobs" in flags else ("--jobs", "1"))])


def simulated(*flags: str) -> tuple[int, dict[str, Any]]:
    """Return its exit code and what it printed as JSON."""
    result = simulate(*flags, "--json")
    return result.exit_code, json.loads(result.stdout)


def repeated(command: str) -> tuple[int, dict[str, Any]]:
    """Call it as its output says."""
    name, subcommand, *flags = shlex.split(command)
    assert (name, subcommand) == ("tda", "simulate")
    return simulated(*flags)
