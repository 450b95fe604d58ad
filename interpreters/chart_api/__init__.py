"""Chart-IMG: from fixtures, over HTTP, or first the one and then the other.

Owns the choice the effect already made: `replay` asks the fixtures, everything else goes over HTTP.
"""

from __future__ import annotations

from core.charts.answers import Answer, NoAnswer
from effects import CallChartApi
from interpreters.chart_api.fixtures import FixtureFolder
from interpreters.chart_api.http import ChartImg


class FixturesOrHttp:
    """The chart API of every mode: mock replays all, real none, record what existed when the run began."""

    def __init__(self, fixtures: FixtureFolder, http: ChartImg) -> None:
        """Ask these two."""
        self._fixtures = fixtures
        self._http = http

    def ask(self, effect: CallChartApi) -> Answer | NoAnswer:
        """Return the answer to one call."""
        return self._fixtures.ask(effect) if effect.replay else self._http.ask(effect)
