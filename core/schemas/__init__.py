"""JSON Schemas: package data, compiled once.

Owns loading them as validators. Must not know what is validated.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from jsonschema import Draft202012Validator


@cache
def charts_outputs_manifest() -> Draft202012Validator:
    """Return the validator of ChartsOutputsManifest documents."""
    return _validator("charts_outputs_manifest.schema.json")


@cache
def llm_report_file() -> Draft202012Validator:
    """Return the validator of report files."""
    return _validator("llm_report_file.schema.json")


def _validator(name: str) -> Draft202012Validator:
    schema = json.loads((files(__package__) / name).read_text("utf-8"))
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
