"""Inputs, references and profile: what makes a report step executable, and every way in which it is not."""

from __future__ import annotations

from typing import Any

import pytest
from returns.result import Failure, Success

from core.reports.profile import parse_profile, schema_version
from core.reports.references import GcsUri, PreviousReport, parse_uri, report_name
from core.reports.step import ReportStep, parse_report_step
from effects import StepError
from tests.builders import RUN_ID
from tests.report_world import (
    CANDLES_ID,
    CANDLES_NAME,
    CHARTS_ID,
    MANIFEST_NAME,
    OLD_ID,
    OLD_NAME,
    PROMPT_ID,
    REPORT_ID,
    SCHEMA_ID,
    a_profile,
    a_report_flow_run,
    a_report_step,
    changed_step,
    parsed_step,
    report_inputs,
    report_steps,
    uri_of,
    with_profile,
)


def parse(flow_run: dict[str, Any], allowed: Any = None) -> ReportStep | StepError:
    result = parse_report_step(flow_run, RUN_ID, REPORT_ID, allowed)
    return result.failure() if isinstance(result, Failure) else result.unwrap()


def error_of(flow_run: dict[str, Any], allowed: Any = None) -> StepError:
    error = parse(flow_run, allowed)
    assert isinstance(error, StepError)
    return error


def paths(error: StepError) -> list[str]:
    assert error.details is not None
    return [one["path"] for one in error.details["problems"]]


HERE = f'steps["{REPORT_ID}"].inputs'


def test_4_4_the_references_of_a_step_are_resolved_to_uris() -> None:
    step = parsed_step()
    assert (step.symbol, step.timeframe, step.prompt_id) == ("BTCUSDT", "1M", PROMPT_ID)
    assert (str(step.candles), str(step.manifest)) == (uri_of(CANDLES_NAME), uri_of(MANIFEST_NAME))
    assert step.previous == ()


def test_4_21_unknown_fields_are_ignored() -> None:
    flow_run = a_report_flow_run(report_steps(novel=1, inputs={**report_inputs(), "x": {}}), odd=[1])
    assert isinstance(parse(flow_run), ReportStep)


# Candles and charts.


def with_outputs(step_id: str, outputs: Any) -> dict[str, Any]:
    steps = report_steps()
    steps[step_id] = {**steps[step_id], "outputs": outputs}
    return a_report_flow_run(steps)


@pytest.mark.parametrize("step_id", [CANDLES_ID, CHARTS_ID])
@pytest.mark.parametrize("outputs", [{}, None, [], {"gcs_uri": None}, {"gcs_uri": "http://x"}, {"gcs_uri": 7}])
def test_4_4_a_referenced_step_without_a_usable_uri_is_refused(step_id: str, outputs: Any) -> None:
    assert error_of(with_outputs(step_id, outputs)).code == "INVALID_STEP_INPUTS"


@pytest.mark.parametrize("name", ["ohlcvStepId", "chartsManifestStepId"])
@pytest.mark.parametrize("value", [None, 7, "nobody", ["x"], {}])
def test_4_4_a_reference_that_names_no_step_is_refused(name: str, value: Any) -> None:
    error = error_of(changed_step(inputs=report_inputs(**{name: value})))
    assert (error.code, paths(error)) == ("INVALID_STEP_INPUTS", [f"{HERE}.{name}"])


def test_candles_are_not_found_in_outputsmanifestgcsuri() -> None:
    flow_run = with_outputs(CANDLES_ID, {"outputsManifestGcsUri": uri_of("x")})
    assert error_of(flow_run).code == "INVALID_STEP_INPUTS"


def test_charts_gcs_uri_wins_over_outputsmanifestgcsuri() -> None:
    outputs = {"gcs_uri": uri_of("first"), "outputsManifestGcsUri": uri_of("second")}
    step = parse(with_outputs(CHARTS_ID, outputs))
    assert isinstance(step, ReportStep)
    assert str(step.manifest) == uri_of("first")


def test_a_bad_uri_is_named_by_the_field_it_stands_in() -> None:
    error = error_of(with_outputs(CHARTS_ID, {"outputsManifestGcsUri": "http://x"}))
    assert paths(error) == [f'steps["{CHARTS_ID}"].outputs.outputsManifestGcsUri']


# Previous reports.


def previous(inputs: dict[str, Any]) -> Any:
    step = parse(changed_step(inputs=report_inputs(**inputs)))
    return step.previous if isinstance(step, ReportStep) else step


OLD = PreviousReport(OLD_ID, GcsUri("local-artifacts", OLD_NAME))
OTHER_URI = "gs://other-bucket/a/b.json"
OTHER = GcsUri("other-bucket", "a/b.json")


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        ({"previousReportStepIds": [OLD_ID]}, (OLD,)),
        ({"previousReports": [{"stepId": OLD_ID}]}, (OLD,)),
        ({"previousReports": [{"gcs_uri": OTHER_URI}]}, (PreviousReport(OTHER_URI, OTHER),)),
        ({"previousReports": [{"stepId": "nobody", "gcs_uri": OTHER_URI}]}, (PreviousReport("nobody", OTHER),)),
        ({"previousReports": [{"stepId": 7, "gcs_uri": OTHER_URI}]}, (PreviousReport(OTHER_URI, OTHER),)),
        (
            {"previousReportStepIds": [OLD_ID], "previousReports": [{"gcs_uri": OTHER_URI}]},
            (OLD, PreviousReport(OTHER_URI, OTHER)),
        ),
        ({"previousReportStepIds": [], "previousReports": []}, ()),
    ],
)
def test_4_4_previous_reports_are_resolved_in_order_and_gcs_uri_wins(inputs: Any, found: Any) -> None:
    assert previous(inputs) == found


@pytest.mark.parametrize(
    ("inputs", "where"),
    [
        ({"previousReportStepIds": ["nobody"]}, "previousReportStepIds[0]"),
        ({"previousReportStepIds": [CANDLES_ID]}, "previousReportStepIds[0]"),
        ({"previousReportStepIds": [OLD_ID, REPORT_ID]}, "previousReportStepIds[1]"),
        ({"previousReportStepIds": [{}]}, "previousReportStepIds[0]"),
        ({"previousReportStepIds": OLD_ID}, "previousReportStepIds"),
        ({"previousReports": {"stepId": OLD_ID}}, "previousReports"),
        ({"previousReports": [{}]}, "previousReports[0]"),
        ({"previousReports": ["text"]}, "previousReports[0]"),
        ({"previousReports": [{"stepId": None, "gcs_uri": None}]}, "previousReports[0]"),
        ({"previousReports": [{"stepId": CHARTS_ID}]}, "previousReports[0].stepId"),
        ({"previousReports": [{"stepId": OLD_ID, "gcs_uri": "text"}]}, "previousReports[0].gcs_uri"),
    ],
)
def test_4_4_a_previous_report_that_is_none_is_refused(inputs: Any, where: str) -> None:
    error = previous(inputs)
    assert isinstance(error, StepError)
    assert (error.code, paths(error)) == ("INVALID_STEP_INPUTS", [f"{HERE}.{where}"])


def test_4_12_a_previous_report_of_another_type_is_refused_and_its_type_is_named() -> None:
    error = previous({"previousReportStepIds": [CANDLES_ID]})
    assert "'OHLCV_EXPORT', not LLM_REPORT" in error.message


# The step's own fields.


@pytest.mark.parametrize("timeframe", [None, 7, "", "M", "1M/x", "../1M", "1M\n"])
def test_a_timeframe_that_is_none_is_refused(timeframe: Any) -> None:
    assert error_of(changed_step(timeframe=timeframe)).code == "INVALID_STEP_INPUTS"


@pytest.mark.parametrize("scope", [None, {}, {"symbol": ""}, {"symbol": 7}, {"symbol": "A B"}, "text"])
def test_a_scope_without_a_symbol_is_refused(scope: Any) -> None:
    error = error_of(a_report_flow_run(scope=scope))
    assert (error.code, paths(error)) == ("INVALID_STEP_INPUTS", ["scope.symbol"])


@pytest.mark.parametrize("prompt_id", ["p", "llm_prompt_1M_report_v1_0", "whatever it is", "a.b:c"])
def test_4_23_prompt_ids_are_free(prompt_id: str) -> None:
    step = parse(changed_step(inputs=report_inputs(llm={"promptId": prompt_id, "llmProfile": a_profile()})))
    assert isinstance(step, ReportStep)
    assert step.prompt_id == prompt_id


@pytest.mark.parametrize("prompt_id", [None, "", 7, "a/b", "a\nb", "x" * 201])
def test_a_prompt_id_that_names_no_document_is_refused(prompt_id: Any) -> None:
    error = error_of(changed_step(inputs=report_inputs(llm={"promptId": prompt_id, "llmProfile": a_profile()})))
    assert (error.code, paths(error)) == ("INVALID_STEP_INPUTS", [f"{HERE}.llm.promptId"])


@pytest.mark.parametrize(("depends_on", "count"), [(["nobody"], 1), ([CANDLES_ID, "x", 7], 2), ("text", 1)])
def test_an_unknown_id_in_dependson_is_refused(depends_on: Any, count: int) -> None:
    error = error_of(changed_step(dependsOn=depends_on))
    assert (error.code, len(paths(error))) == ("INVALID_STEP_INPUTS", count)


@pytest.mark.parametrize("run_id", [None, 7, "another", RUN_ID.lower()])
def test_a_run_id_other_than_the_documents_makes_the_flow_run_invalid(run_id: Any) -> None:
    error = error_of({**a_report_flow_run(), "runId": run_id})
    assert (error.code, paths(error)) == ("FLOW_RUN_INVALID", ["runId"])


@pytest.mark.parametrize("step_id", ["a/b", "../x", "a\x00b", "", "x" * 300])
def test_4_17_a_step_id_that_cannot_name_an_object_is_refused(step_id: str) -> None:
    flow_run = a_report_flow_run({**report_steps(), step_id: a_report_step()})
    result = parse_report_step(flow_run, RUN_ID, step_id, None)
    assert result.failure().code == "INVALID_STEP_INPUTS"


def test_4_21_a_step_id_may_have_dots_and_colons() -> None:
    flow_run = a_report_flow_run({**report_steps(), "report:1M.final": a_report_step()})
    assert isinstance(parse_report_step(flow_run, RUN_ID, "report:1M.final", None), Success)


def test_all_that_is_wrong_is_said_at_once_under_the_code_that_comes_first() -> None:
    inputs = {"llm": {"llmProfile": a_profile(candidateCount=2, responseMimeType="text/plain")}}
    error = error_of(a_report_flow_run({REPORT_ID: a_report_step(inputs=inputs, dependsOn=[])}))
    assert error.code == "INVALID_STEP_INPUTS"
    assert paths(error) == [
        f"{HERE}.llm.promptId",
        f"{HERE}.ohlcvStepId",
        f"{HERE}.chartsManifestStepId",
        f"{HERE}.llm.llmProfile.candidateCount",
        f"{HERE}.llm.llmProfile.responseMimeType",
    ]


@pytest.mark.parametrize("inputs", [None, "text", [], {"llm": "text"}])
def test_inputs_that_are_no_object_are_refused(inputs: Any) -> None:
    assert error_of(changed_step(inputs=inputs)).code == "INVALID_STEP_INPUTS"


# The profile.


@pytest.mark.parametrize(
    "changes",
    [
        {"responseMimeType": None},
        {"responseMimeType": "text/plain"},
        {"candidateCount": 2},
        {"candidateCount": 0},
        {"candidateCount": True},
        {"candidateCount": "1"},
        {"modelName": None},
        {"modelName": 7},
        {"modelName": ""},
        {"modelName": "a model"},
        {"temperature": "hot"},
        {"temperature": True},
        {"topP": []},
        {"topK": "x"},
        {"maxOutputTokens": 0},
        {"maxOutputTokens": 1.5},
        {"stopSequences": "x"},
        {"stopSequences": [1]},
        {"thinkingConfig": 7},
        {"structuredOutput": None},
        {"structuredOutput": "text"},
        {"structuredOutput": {"schemaId": SCHEMA_ID}},
        {"structuredOutput": {"schemaId": SCHEMA_ID, "kind": "OTHER"}},
        {"structuredOutput": {"kind": "LLM_REPORT_OUTPUT"}},
        {"structuredOutput": {"schemaId": "my_schema", "kind": "LLM_REPORT_OUTPUT"}},
    ],
)
def test_4_10_a_profile_that_cannot_be_executed_is_refused(changes: dict[str, Any]) -> None:
    error = error_of(changed_step(inputs=with_profile(**changes)))
    assert error.code == "LLM_PROFILE_INVALID"
    (path,) = paths(error)
    assert path.startswith(f"{HERE}.llm.llmProfile.{next(iter(changes))}")


@pytest.mark.parametrize("profile", [None, "text", []])
def test_4_10_a_profile_that_is_no_object_is_refused(profile: Any) -> None:
    llm = {"promptId": PROMPT_ID, "llmProfile": profile}
    assert error_of(changed_step(inputs=report_inputs(llm=llm))).code == "LLM_PROFILE_INVALID"


def test_4_10_all_that_is_wrong_with_a_profile_is_said_at_once() -> None:
    bad = {"candidateCount": 3, "structuredOutput": {"schemaId": "x", "kind": "y"}, "topK": "z"}
    problems = parse_profile(bad, "here", None).failure()
    assert [one.where for one in problems] == [
        "here.modelName",
        "here.structuredOutput.kind",
        "here.structuredOutput.schemaId",
        "here.topK",
        "here.candidateCount",
        "here.responseMimeType",
    ]


def test_4_3_the_profile_is_authoritative_nothing_is_merged_into_it() -> None:
    minimal = a_profile(temperature=None)
    assert parse_profile(minimal, "p", None).unwrap().generation == {"responseMimeType": "application/json"}
    values = {
        "temperature": 0,
        "topP": 0.5,
        "topK": 40,
        "maxOutputTokens": 100,
        "stopSequences": ["END"],
        "candidateCount": 1,
        "responseMimeType": "application/json",
        "thinkingConfig": {"thinkingBudget": 0},
    }
    full = a_profile(**values, novel="ignored by the call, kept in the report")
    profile = parse_profile(full, "p", None).unwrap()
    assert (profile.generation, profile.raw) == (values, full)


@pytest.mark.parametrize(
    ("names", "model"),
    [
        ({"modelName": None, "model": "m2"}, "m2"),
        ({"modelName": "m1", "model": "m2"}, "m1"),
        ({"modelName": "models/gemini-2.5-flash"}, "models/gemini-2.5-flash"),
    ],
)
def test_model_is_another_name_for_modelname(names: dict[str, Any], model: str) -> None:
    profile = {**a_profile(), **names}
    assert parse_profile(profile, "p", None).unwrap().model == model


def test_a_model_that_is_not_allowed_is_refused() -> None:
    error = error_of(a_report_flow_run(), {"gemini-2.5-flash", "a"})
    assert error.code == "LLM_PROFILE_INVALID"
    assert "allowed are: a, gemini-2.5-flash" in error.message
    assert isinstance(parse(a_report_flow_run(), {"gemini-2.5-pro"}), ReportStep)


@pytest.mark.parametrize(
    ("schema_id", "version"),
    [
        ("llm_report_output_v1", 1),
        ("llm_report_output_v12", 12),
        ("llm_schema_1M_report_v1_0", 1),
        ("llm_schema_4h_reco_v3_14", 3),
        ("llm_schema_1w_report_short_v2_1", 2),
        ("llm_schema_1w_report_very_short_v2_1", 2),
    ],
)
def test_4_11_both_conventions_of_schema_ids_give_a_version(schema_id: str, version: int) -> None:
    assert schema_version(schema_id) == version
    profile = a_profile(structuredOutput={"schemaId": schema_id, "kind": "LLM_REPORT_OUTPUT"})
    assert parse_profile(profile, "p", None).unwrap().schema_version == version


@pytest.mark.parametrize(
    "schema_id",
    [
        None,
        7,
        "",
        "llm_report_output",
        "llm_report_output_v",
        "llm_report_output_v1_0",
        "llm_report_output_v1 ",
        "llm_report_output_v1\n",
        "llm_report_output_v\u0661",
        "xllm_report_output_v1",
        "LLM_REPORT_OUTPUT_V1",
        "llm_schema_1M_report_v1",
        "llm_schema_1M_news_v1_0",
        "llm_schema_report_v1_0",
        "llm_schema_1M_report_v1_0_0",
        "llm_schema_1M_report__v1_0",
    ],
)
def test_4_11_any_other_schema_id_is_refused(schema_id: Any) -> None:
    assert schema_version(schema_id) is None


def test_4_11_the_step_s_own_hash_is_informational_only() -> None:
    spec = {"schemaId": SCHEMA_ID, "kind": "LLM_REPORT_OUTPUT", "schemaSha256": "not even a hash"}
    assert isinstance(parse(changed_step(inputs=with_profile(structuredOutput=spec))), ReportStep)


# URIs and names.


@pytest.mark.parametrize("text", ["gs://bkt/a", "gs://my-bucket.x/a/b c:d.json", "gs://bkt/ä/%20"])
def test_4_16_a_gcs_uri_is_bucket_and_object_and_back(text: str) -> None:
    uri = parse_uri(text, "here").unwrap()
    assert (str(uri), uri.bucket) == (text, text.split("/")[2])


@pytest.mark.parametrize(
    "text", ["", "gs://", "gs://bkt", "gs://bkt/", "gs:///a", "s3://bkt/a", "GS://bkt/a", "gs://B_/a", 7, None]
)
def test_4_16_anything_else_is_no_gcs_uri(text: Any) -> None:
    (found,) = parse_uri(text, "here").failure()
    assert found.where == "here"


@pytest.mark.parametrize(("prefix", "folder"), [("", ""), ("reports", "reports/"), ("a/b", "a/b/")])
def test_4_17_the_report_s_name_is_of_run_timeframe_and_step_alone(prefix: str, folder: str) -> None:
    assert report_name(prefix, "run", "1M", "s:1") == f"{folder}run/1M/s:1.json"
