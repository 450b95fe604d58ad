from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interpreters.shipped import FLOW_RUNS, TEMPLATES
from tests.builders import RUN_ID, STEP_ID, a_flow_run, a_step, a_template
from tests.end_to_end.console import (
    TDA_CHARTS,
    WORKER,
    Call,
    Ended,
    call,
    call_all,
    exported_step,
    run_local,
    write_flow_run,
    write_json,
)

SAMPLE = FLOW_RUNS / "five_charts.json"
NOW = ("--now", "2025-12-15T10:25:30Z")
REAL = ("--charts-api-mode", "real")
TWO_ACCOUNTS = json.dumps([{"id": one, "apiKey": f"key-{one}"} for one in ("acc1", "acc2")])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


# Help.

INPUT_FLAGS = (
    "--flow-run-path",
    "--step-id",
    "--charts-api-mode",
    "--charts-bucket",
    "--accounts-config-path",
    "--templates-dir",
    "--fixtures-dir",
    "--state-dir",
)
HELP: dict[str, tuple[str, ...]] = {
    "": ("run-local", "plan", "templates", "accounts", "--version"),
    "run-local": (*INPUT_FLAGS, "--output-summary"),
    "plan": (*INPUT_FLAGS, "--usage-path", "--now", "--format"),
    "templates validate": ("DIR",),
    "accounts status": ("--state-dir", "--accounts-config-path"),
}


@pytest.fixture(scope="module")
def helps(folder: Path) -> dict[str, Ended]:
    calls = {name: Call(folder, (*name.split(), "--help")) for name in HELP}
    also = {f"tda {name}": Call(folder, (*name.split(), "--help"), TDA_CHARTS) for name in ("run-local", "plan")}
    return call_all({**calls, **also, "tda": Call(folder, ("--help",), TDA_CHARTS[:1])})


@pytest.mark.parametrize("name", HELP)
def test_help_names_every_flag(helps: Mapping[str, Ended], name: str) -> None:
    assert (helps[name].code, helps[name].stderr) == (0, "")
    assert [flag for flag in HELP[name] if flag not in helps[name].stdout] == []


@pytest.mark.parametrize("name", ["run-local", "plan"])
def test_tda_charts_has_the_same_commands_as_worker_chart_export(helps: Mapping[str, Ended], name: str) -> None:
    ours = helps[name].stdout.splitlines()
    theirs = helps[f"tda {name}"].stdout.splitlines()
    assert theirs[0] == ours[0].replace("worker-chart-export", "tda charts")
    assert theirs[1:] == ours[1:]


def test_tda_names_its_workers(helps: Mapping[str, Ended]) -> None:
    assert helps["tda"].code == 0
    assert "charts" in helps["tda"].stdout


# Plan.


def many_steps() -> dict[str, Any]:
    return a_flow_run({"done": a_step(status="SUCCEEDED"), STEP_ID: a_step()})


def the_plans(folder: Path) -> dict[str, Call]:
    usage = {"windowStart": "2025-12-15T00:00:00Z"}
    used_up = write_json(folder / "used up.json", {"acc1": {**usage, "usageToday": 44}})
    nearly = write_json(
        folder / "nearly.json", {"acc1": {**usage, "usageToday": 42}, "acc2": {**usage, "usageToday": 43}}
    )
    yesterday = write_json(
        folder / "yesterday.json", {"acc1": {"windowStart": "2025-12-14T00:00:00Z", "usageToday": 44}}
    )
    steps = write_flow_run(folder, many_steps())
    half = write_flow_run(folder, a_flow_run({"\ud800": a_step()}), "half.json")
    (folder / "bad usage.json").write_text('{"acc1": 3}')
    accounts = {"CHART_IMG_ACCOUNTS_JSON": TWO_ACCOUNTS}
    sample = ("plan", "--flow-run-path", SAMPLE, *NOW)
    as_json = (*sample, "--format", "json")
    return {
        "text": Call(folder, sample),
        "json": Call(folder, as_json),
        "json again": Call(folder, as_json, TDA_CHARTS),
        "real": Call(folder, (*as_json, *REAL), variables=accounts),
        "used up": Call(folder, (*as_json, *REAL, "--usage-path", used_up), variables=accounts),
        "nearly used up": Call(folder, (*as_json, *REAL, "--usage-path", nearly), variables=accounts),
        "used up yesterday": Call(folder, (*as_json, *REAL, "--usage-path", yesterday), variables=accounts),
        "nothing to do, text": Call(folder, ("plan", "--flow-run-path", steps, "--step-id", "done")),
        "nothing to do, json": Call(
            folder, ("plan", "--flow-run-path", steps, "--step-id", "done", "--format", "json")
        ),
        "bad now": Call(folder, ("plan", "--flow-run-path", SAMPLE, "--now", "yesterday")),
        "now without a zone": Call(folder, ("plan", "--flow-run-path", SAMPLE, "--now", "2025-12-15T10:25:30")),
        "bad usage": Call(folder, (*sample, "--usage-path", folder / "bad usage.json")),
        "no flow_run": Call(folder, ("plan", "--flow-run-path", folder / "nowhere.json")),
        "unknown step": Call(folder, (*sample, "--step-id", "nope")),
        "half a character": Call(folder, ("plan", "--flow-run-path", half)),
    }


@pytest.fixture(scope="module")
def plans(folder: Path) -> dict[str, Ended]:
    return call_all(the_plans(folder))


def effects(ended: Ended, kind: str | None = None) -> list[dict[str, Any]]:
    return [one for one in json.loads(ended.stdout)["effects"] if kind in {None, one["effect"]}]


def test_plan_prints_one_numbered_line_an_effect_and_what_would_come_of_it(plans: Mapping[str, Ended]) -> None:
    lines = plans["text"].stdout.splitlines()
    assert len(lines) == 16
    assert [line.split()[0] for line in lines[:-1]] == [f"{number}." for number in range(1, 16)]
    assert lines[0].split()[1] == "ClaimStep"
    assert lines[-1].startswith("expected: CHART_EXPORT SUCCEEDED: manifest=gs://local-artifacts/charts/")
    assert (plans["text"].code, plans["text"].stderr) == (0, "")


def test_plan_as_json_is_byte_for_byte_the_same_for_the_same_moment(plans: Mapping[str, Ended]) -> None:
    assert plans["json"].code == 0
    assert plans["json"].stdout == plans["json again"].stdout


def test_plan_as_json_has_sorted_keys_and_class_names_as_tags(plans: Mapping[str, Ended]) -> None:
    document = json.loads(plans["json"].stdout)
    assert plans["json"].stdout == json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert (document["runId"], document["stepId"], document["status"]) == (RUN_ID, STEP_ID, "SUCCEEDED")
    tags = [one["effect"] for one in document["effects"]]
    assert tags[:3] == ["ClaimStep", "LoadTemplates", "ReserveAccount"]
    assert tags[-1] == "FinalizeStep"


def test_plan_does_nothing(plans: Mapping[str, Ended], folder: Path) -> None:
    assert not (folder / ".tda").exists()
    assert {path.suffix for path in folder.iterdir() if path.is_file()} == {".json"}


def test_plan_in_real_mode_paces_the_calls_of_each_account(plans: Mapping[str, Ended]) -> None:
    assert len(effects(plans["real"], "CallChartApi")) == 5
    waits = effects(plans["real"], "Wait")
    assert [one["reason"] for one in waits] == ["slot"] * 3
    assert "key-acc" not in plans["real"].stdout


def test_plan_respects_the_usage_that_is_given(plans: Mapping[str, Ended]) -> None:
    assert {one["accountId"] for one in effects(plans["real"], "CallChartApi")} == {"acc1", "acc2"}
    assert {one["accountId"] for one in effects(plans["used up"], "CallChartApi")} == {"acc2"}
    called = [one["accountId"] for one in effects(plans["nearly used up"], "CallChartApi")]
    assert sorted(called) == ["acc1", "acc1", "acc2"]
    assert json.loads(plans["nearly used up"].stdout)["status"] == "FAILED"
    assert effects(plans["used up yesterday"]) == effects(plans["real"])


def test_plan_says_why_there_is_nothing_to_do(plans: Mapping[str, Ended]) -> None:
    assert plans["nothing to do, text"].stdout == "nothing to do: step_not_ready\n"
    document = json.loads(plans["nothing to do, json"].stdout)
    assert document == {
        "effects": [],
        "noopReason": "step_not_ready",
        "runId": RUN_ID,
        "status": "NOOP",
        "stepId": "done",
    }
    assert (plans["nothing to do, text"].code, plans["nothing to do, json"].code) == (0, 0)


def test_plan_prints_a_step_id_that_no_encoding_can_hold(plans: Mapping[str, Ended]) -> None:
    assert "Traceback" not in plans["half a character"].stderr
    assert plans["half a character"].code == 0
    assert "VALIDATION_FAILED" in plans["half a character"].stdout


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bad now", ("--now", "2025-12-15T10:25:30Z")),
        ("now without a zone", ("--now", "time zone")),
        ("bad usage", ("--usage-path", "bad usage.json", "object")),
        ("no flow_run", ("--flow-run-path", "nowhere.json")),
        ("unknown step", ("--step-id", "'nope'")),
    ],
)
def test_a_wrong_call_of_plan_exits_2_and_names_what_is_wrong(
    plans: Mapping[str, Ended], name: str, says: tuple[str, ...]
) -> None:
    assert (plans[name].code, plans[name].stdout) == (2, "")
    (problem,) = plans[name].problems()
    assert [text for text in says if text not in problem] == []


# Templates.

WRONG_TEMPLATES: dict[str, tuple[object, str, str]] = {
    "wrong_id": (a_template("another"), "id", "must be 'wrong_id'"),
    "no_description": (a_template("no_description", description=" "), "description", "non-empty string"),
    "no_place": (
        a_template("no_place", chartImgSymbolTemplate="BINANCE:BTC"),
        "chartImgSymbolTemplate",
        "{symbol}",
    ),
    "request_a_list": (a_template("request_a_list", request=[]), "request", "must be an object"),
    "list_at_the_top": ([], "json", "object"),
}


@pytest.fixture(scope="module")
def validations(folder: Path) -> dict[str, Ended]:
    for name, (document, _, _) in WRONG_TEMPLATES.items():
        write_json(folder / "templates" / f"{name}.json", document)
    write_json(folder / "templates" / "good.json", a_template("good"))
    (folder / "templates" / "not_json.json").write_text("{")
    (folder / "deep").mkdir()
    (folder / "deep" / "deep.json").write_text("[" * 100_000)
    commands = ("templates", "validate")
    return call_all(
        {
            "shipped": Call(folder, commands),
            "shipped, named": Call(folder, (*commands, TEMPLATES), TDA_CHARTS),
            "wrong": Call(folder, (*commands, "templates")),
            "deep": Call(folder, (*commands, "deep")),
            "missing": Call(folder, (*commands, "nowhere")),
        }
    )


def test_the_shipped_templates_are_valid(validations: Mapping[str, Ended]) -> None:
    for name in ("shipped", "shipped, named"):
        assert (validations[name].code, validations[name].stdout) == (0, "5 of 5 templates are valid\n")


@pytest.mark.parametrize("name", WRONG_TEMPLATES)
def test_a_wrong_template_is_named_with_its_field_and_what_would_be_right(
    validations: Mapping[str, Ended], name: str
) -> None:
    _, where, must = WRONG_TEMPLATES[name]
    assert validations["wrong"].code == 1
    (line,) = [one for one in validations["wrong"].stdout.splitlines() if name in one]
    assert where in line
    assert must in line


def test_a_template_that_is_not_json_is_named(validations: Mapping[str, Ended]) -> None:
    lines = validations["wrong"].stdout.splitlines()
    assert [line for line in lines if "not_json.json" in line and "JSON" in line]
    assert validations["wrong"].stderr == ""


def test_templates_are_counted_one_by_one(validations: Mapping[str, Ended]) -> None:
    assert validations["wrong"].stdout.splitlines()[-1] == "1 of 7 templates are valid"


def test_a_template_nested_too_deep_is_named_without_a_traceback(validations: Mapping[str, Ended]) -> None:
    assert "Traceback" not in validations["deep"].stderr
    assert validations["deep"].code == 1
    assert "deep.json" in validations["deep"].stdout


def test_a_missing_folder_of_templates_exits_2(validations: Mapping[str, Ended]) -> None:
    ended = validations["missing"]
    assert (ended.code, ended.stdout) == (2, "")
    assert "nowhere" in ended.problems()[0]


# Accounts.


def test_accounts_status_shows_used_limit_and_window(tmp_path: Path) -> None:
    accounts = [
        {"id": "acc1", "apiKey": "key-acc1", "dailyLimit": 10},
        {"id": "acc2", "apiKey": "key-acc2"},
    ]
    config = ("--accounts-config-path", write_json(tmp_path / "accounts.json", accounts))
    made = run_local(tmp_path, json.loads(SAMPLE.read_text("utf-8")), flags=config)
    assert call(tmp_path, *made.arguments).code == 0
    window = exported_step(tmp_path / "state")["finishedAt"][:10]
    ended = call(tmp_path, "accounts", "status", "--state-dir", "state", *config)
    assert (ended.code, ended.stderr) == (0, "")
    rows = [line.replace("│", " ").split() for line in ended.stdout.splitlines() if "acc" in line]
    header, *rows = [row for row in rows if row]
    assert header[0] == "┃" or "account" in header
    assert [row[:6] for row in rows] == [
        ["acc1", "real", "0", "10", window, "UTC"],
        ["acc2", "real", "0", "44", window, "UTC"],
        ["acc1", "mock", "5", "10", window, "UTC"],
        ["acc2", "mock", "0", "none", window, "UTC"],
    ]
    assert rows[2][6] == "█" * 10 + "░" * 10
    assert "key-acc" not in ended.stdout


def test_accounts_status_works_where_nothing_has_run_yet(tmp_path: Path) -> None:
    ended = call(tmp_path, "accounts", "status", command=WORKER)
    assert ended.code == 0
    for title in ("account", "used", "limit", "window", "local"):
        assert title in ended.stdout


def test_accounts_status_exits_2_when_the_state_directory_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = call(tmp_path, "accounts", "status", "--state-dir", "file")
    assert (ended.code, ended.stdout) == (2, "")
    assert "--state-dir" in ended.problems()[0]
