"""What the README shows is what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from core.charts.settings import VARIABLES as CHART_VARIABLES
from core.cloud import VARIABLES as CLOUD_VARIABLES
from core.flow.graph import parse_graph
from core.flow.picture import graph_as_mermaid
from core.flow.settings import VARIABLES as FLOW_VARIABLES
from core.journal.settings import VARIABLES as JOURNAL_VARIABLES
from core.reports.settings import VARIABLES as REPORT_VARIABLES
from interpreters.shipped import FLOW_RUNS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_the_picture_of_a_flow_is_the_one_that_the_command_draws() -> None:
    (shown,) = re.findall(r"```mermaid\n(.*?)\n```", README, re.DOTALL)
    sample = json.loads((FLOW_RUNS / "candles_charts_report.json").read_text("utf-8"))
    assert shown == graph_as_mermaid(sample, parse_graph(sample["steps"]).unwrap())


def test_every_file_that_the_readme_names_is_there() -> None:
    named = set(re.findall(r"(?:fixtures|deploy)/[\w./{}-]+\.(?:json|md|png|py|yaml)", README))
    assert named
    assert [one for one in sorted(named) if not (ROOT / one).exists()] == []


def test_every_variable_of_a_settings_table_is_in_the_readme() -> None:
    names = (*CHART_VARIABLES, *CLOUD_VARIABLES, *FLOW_VARIABLES, *JOURNAL_VARIABLES, *REPORT_VARIABLES)
    assert [one for one in names if f"`{one}`" not in README] == []
