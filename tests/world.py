"""A scripted world for programs: everything goes as hoped unless a test says otherwise.

Time is virtual; every effect is answered after its latency, in order of time. The trace holds each effect with its outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Generic, TypeVar

from core.charts.answers import Answer, NoAnswer, read_answer
from core.charts.naming import object_uri
from core.charts.program import CHART_EXPORT
from core.charts.state import Inputs, State, StepResult
from core.events import LogEvent
from core.hopes import Hopes, hoped_chart
from core.program import Program
from effects import (
    CallChartApi,
    ChartRefused,
    ChartRendered,
    Document,
    Effect,
    ListObjects,
    Outcome,
    PutObject,
    ReadObject,
    Wait,
)
from interpreters.objects.memory import ObjectMemory
from tests.builders import a_png, templates

StateT = TypeVar("StateT")
Reply = Callable[[Any, datetime], Outcome]


@dataclass
class VirtualWorld(Generic[StateT]):
    """Runs a program on virtual time."""

    inputs: Any
    program: Program[Any, StateT]
    replies: Mapping[type, Reply] = field(default_factory=dict)
    """Per effect type, an outcome other than the hoped one."""
    latency: Mapping[type, timedelta] = field(default_factory=dict)
    objects: ObjectMemory = field(default_factory=ObjectMemory)
    trace: list[tuple[datetime, Effect, Outcome]] = field(default_factory=list)
    history: list[tuple[Effect, Outcome | None]] = field(default_factory=list)
    """Each effect when it began, and again with its outcome."""
    state: StateT | None = None

    def __post_init__(self) -> None:
        self.documents: dict[str, Document] = {self.inputs.flow_run_path: self.inputs.flow_run}
        self._hopes = self.hopes()
        self._hopes.table |= {
            PutObject: self.objects.put,
            ListObjects: self.objects.list,
            ReadObject: self.objects.read,
        }

    def hopes(self) -> Hopes:
        """Return what happens where no reply says otherwise."""
        return Hopes(self.documents)

    def run(self) -> Any:
        """Run to the end and return the result."""
        for _ in self._outcomes():
            pass
        result = getattr(self.state, "result", None)
        assert result is not None
        return result

    def run_until_killed(self, after: int) -> None:
        """Run until so many effects have had their outcomes; what is in flight then does not happen."""
        for _ in islice(self._outcomes(), after):
            pass

    def hoped(self, effect: Effect, now: datetime) -> Outcome:
        """Return the outcome that the effect has where no reply says otherwise."""
        return self._hopes.outcome(effect, now)

    def stored(self) -> dict[str, bytes]:
        """Return what the bucket holds, by object name."""
        bucket = object_uri(self.inputs.settings.bucket, "")
        return {uri.removeprefix(bucket): data for uri, data in self.objects.objects.items()}

    def store(self, objects: Mapping[str, bytes]) -> None:
        """Put objects into the bucket, by name."""
        bucket = self.inputs.settings.bucket
        self.objects.objects |= {object_uri(bucket, name): data for name, data in objects.items()}

    def _outcomes(self) -> Iterator[Outcome]:
        due: list[tuple[datetime, int, datetime, Effect]] = []
        following = self.program.start(self.inputs)
        self.state = following.state
        number = 0
        now = self.inputs.now
        while True:
            for effect in following.effects:
                number += 1
                self.history.append((effect, None))
                heappush(due, (self._ends(effect, now), number, now, effect))
            if not due:
                return
            now, _, begun, effect = heappop(due)
            outcome = self._outcome(effect, now)
            self.trace.append((begun, effect, outcome))
            self.history.append((effect, outcome))
            following = self.program.react(following.state, outcome)
            self.state = following.state
            yield outcome

    def effects(self, kind: type[Any]) -> list[Any]:
        """Return the effects of a kind, in the order of their outcomes."""
        return [effect for _, effect, _ in self.trace if isinstance(effect, kind)]

    def outcomes(self, kind: type[Any]) -> list[Any]:
        return [outcome for _, _, outcome in self.trace if isinstance(outcome, kind)]

    def said(
        self,
        begun: Callable[[Effect], tuple[LogEvent, ...]],
        done: Callable[[Effect, Outcome], tuple[LogEvent, ...]],
    ) -> list[LogEvent]:
        """Return what the log said of all effects, in the order they began and ended."""
        events = (begun(one) if outcome is None else done(one, outcome) for one, outcome in self.history)
        return [event for said in events for event in said]

    @property
    def step(self) -> Mapping[str, Any]:
        """Return the step as it stands in the document."""
        flow_run = self.documents[self.inputs.flow_run_path]
        step: Mapping[str, Any] = flow_run["steps"][getattr(self.state, "step_id", None)]
        return step

    def _ends(self, effect: Effect, now: datetime) -> datetime:
        if isinstance(effect, Wait):
            return max(now, effect.until)
        return now + self.latency.get(type(effect), timedelta(milliseconds=1))

    def _outcome(self, effect: Effect, now: datetime) -> Outcome:
        reply = self.replies.get(type(effect))
        return reply(effect, now) if reply else self._hopes.outcome(effect, now)


@dataclass
class World(VirtualWorld[State]):
    """Runs the chart-export program on virtual time."""

    inputs: Inputs
    program: Program[Any, State] = CHART_EXPORT
    templates: Mapping[str, Document] = field(default_factory=templates)
    usage: Mapping[str, Document] = field(default_factory=dict)
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Per chartTemplateId, what its calls are answered with; the last answer repeats, none means a picture."""

    def hopes(self) -> Hopes:
        """Return what happens where no reply says otherwise."""
        self.documents |= self.usage
        self._calls: dict[str, int] = {}
        return Hopes(self.documents, templates=self.templates, draw=self._answer)

    def run(self) -> StepResult:
        """Run to the end and return the result."""
        result: StepResult = super().run()
        return result

    def _answer(self, effect: CallChartApi, now: datetime) -> ChartRendered | ChartRefused:
        number = self._calls.get(effect.chart_template_id, 0)
        self._calls[effect.chart_template_id] = number + 1
        script = self.answers.get(effect.chart_template_id, ("png",))
        return answered(effect, script[min(number, len(script) - 1)], now)


def answered(effect: CallChartApi, script: str, now: datetime) -> ChartRendered | ChartRefused:
    """Return the outcome that a script line stands for: png, hoped, timeout, network, missing, or '429 text'."""
    if script == "hoped":
        return hoped_chart(effect, now)
    return read_answer(effect, _answer(effect, script), (), now, now)


def _answer(effect: CallChartApi, script: str) -> Answer | NoAnswer:
    if script == "png":
        return Answer(status=200, body=a_png(padding=effect.chart_template_id.encode()))
    if script in {"timeout", "network"}:
        return NoAnswer(kind=script, message=f"scripted {script}")  # type: ignore[arg-type]
    if script == "missing":
        return NoAnswer(kind="fixture_missing", message=f"no fixture {effect.fixture_key}")
    status, _, message = script.partition(" ")
    return Answer(status=int(status), body=f'{{"message": "{message}"}}'.encode())
