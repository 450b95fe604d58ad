"""What comes with the package: templates, recorded answers, sample flow_runs.

Owns where they are, in a checkout as in a wheel.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

_FOLDER = Path(str(files("fixtures")))

TEMPLATES = _FOLDER / "chart-templates"
CHART_API_FIXTURES = _FOLDER / "chart-api"
FLOW_RUNS = _FOLDER / "flow-runs"
CANDLES = _FOLDER / "candles"
MODEL_FIXTURES = _FOLDER / "model-api"
PROMPTS = _FOLDER / "llm-prompts"
SCHEMAS = _FOLDER / "llm-schemas"
