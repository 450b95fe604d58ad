"""Where artifacts are: gs:// URIs, and the steps that name them (4.4, 4.16, 4.17).

Owns the reading of URIs out of a flow_run, and the report's own name. Must not read any artifact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from returns.result import Result, Success

from core.documents import field
from core.problems import Problems, collect, document_path, kind_or_missing, problem
from effects import Document

STEP_TYPE = "LLM_REPORT"
_URI = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])/([^\x00-\x1f]{1,1024})")


@dataclass(frozen=True, slots=True)
class GcsUri:
    """An object, by bucket and name."""

    bucket: str
    name: str

    def __str__(self) -> str:
        """Return the canonical form."""
        return f"gs://{self.bucket}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreviousReport:
    """A report that this one builds on."""

    label: str
    """Its step id, or its URI where it is named by URI alone."""
    uri: GcsUri


def parse_uri(value: object, where: str) -> Result[GcsUri, Problems]:
    """Return the URI, or what is wrong with it."""
    found = _URI.fullmatch(value) if isinstance(value, str) else None
    if found:
        return Success(GcsUri(found[1], found[2]))
    got = f"is {value!r:.120}" if isinstance(value, str) else f"is {kind_or_missing(value)}"
    return problem(where, f"{got}; must be a URI like gs://bucket/name")


def report_name(prefix: str, run_id: str, timeframe: str, step_id: str) -> str:
    """Return the object name of a step's report: of run, timeframe and step alone."""
    folder = f"{prefix}/" if prefix else ""
    return f"{folder}{run_id}/{timeframe}/{step_id}.json"


def candles_uri(flow_run: Document, inputs: Mapping[str, Any], where: str) -> Result[GcsUri, Problems]:
    """Return where the candles are: `outputs.gcs_uri` of the step that `ohlcvStepId` names."""
    return _output(flow_run, inputs.get("ohlcvStepId"), f"{where}.ohlcvStepId", ("gcs_uri",))


def manifest_uri(flow_run: Document, inputs: Mapping[str, Any], where: str) -> Result[GcsUri, Problems]:
    """Return where the charts' manifest is: `outputs.gcs_uri`, or else `outputs.outputsManifestGcsUri`."""
    names = ("gcs_uri", "outputsManifestGcsUri")
    return _output(flow_run, inputs.get("chartsManifestStepId"), f"{where}.chartsManifestStepId", names)


def previous_reports(
    flow_run: Document, inputs: Mapping[str, Any], where: str
) -> Result[tuple[PreviousReport, ...], Problems]:
    """Return the reports that this one builds on, in the order they are named."""
    step_ids = _list_of(inputs, "previousReportStepIds", where)
    entries = _list_of(inputs, "previousReports", where)
    found = [
        *(
            _report_of_step(flow_run, one, f"{where}.previousReportStepIds[{number}]")
            for number, one in enumerate(step_ids.value_or(()))
        ),
        *(
            _report_of_entry(flow_run, one, f"{where}.previousReports[{number}]")
            for number, one in enumerate(entries.value_or(()))
        ),
    ]
    problems = collect(step_ids, entries, *found)
    return Result.from_failure(problems) if problems else Success(tuple(one.unwrap() for one in found))


def _list_of(inputs: Mapping[str, Any], name: str, where: str) -> Result[Sequence[Any], Problems]:
    value = inputs.get(name)
    if value is None:
        return Success(())
    return Success(value) if isinstance(value, list) else problem(f"{where}.{name}", "must be a list, or absent")


def _report_of_step(flow_run: Document, step_id: object, where: str) -> Result[PreviousReport, Problems]:
    uri = _output(flow_run, step_id, where, ("gcs_uri",), of_type=STEP_TYPE)
    return uri.map(lambda one: PreviousReport(str(step_id), one))


def _report_of_entry(flow_run: Document, entry: object, where: str) -> Result[PreviousReport, Problems]:
    """Return the report of an entry; `gcs_uri` wins over `stepId`."""
    step_id, uri = field(entry, "stepId"), field(entry, "gcs_uri")
    if uri is not None:
        return parse_uri(uri, f"{where}.gcs_uri").map(
            lambda one: PreviousReport(step_id if isinstance(step_id, str) else str(one), one)
        )
    if step_id is None:
        return problem(where, "must have a stepId or a gcs_uri")
    return _report_of_step(flow_run, step_id, f"{where}.stepId")


def _output(
    flow_run: Document, step_id: object, where: str, names: tuple[str, ...], of_type: str | None = None
) -> Result[GcsUri, Problems]:
    """Return the URI in the outputs of the step that is named here."""
    if not isinstance(step_id, str):
        return problem(where, f"is {kind_or_missing(step_id)}; must be a step id")
    step = field(flow_run, "steps", step_id)
    if not isinstance(step, Mapping):
        return problem(where, f"there is no step {step_id!r:.120}")
    if of_type is not None and step.get("stepType") != of_type:
        return problem(where, f"step {step_id!r:.120} is of type {step.get('stepType')!r:.80}, not {of_type}")
    outputs = document_path("steps", step_id, "outputs")
    name = next((one for one in names if field(step, "outputs", one) is not None), None)
    if name is None:
        return problem(where, f"step {step_id!r:.120} has no {' or '.join(f'{outputs}.{one}' for one in names)}")
    return parse_uri(field(step, "outputs", name), f"{outputs}.{name}")
