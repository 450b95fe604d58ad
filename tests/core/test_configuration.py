from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from core.charts.accounts import LOCAL_ACCOUNT, mock_policies, parse_accounts, real_policies
from core.charts.settings import DEFAULTS, LOCAL_DEFAULTS, VARIABLES, parse_configuration
from core.failures import MAX_DETAILS_BYTES, invalid, step_error
from core.flow.flow_run import is_usable_id, parse_flow_run
from core.problems import Problem, document_path, kind_of
from core.secrets import Secret, without_secrets
from core.settings import Given
from effects import AccountPolicy
from tests.builders import CANARY, a_flow_run


def configured(**variables: str) -> Any:
    return parse_configuration({name: Given(text, name) for name, text in variables.items()}, LOCAL_DEFAULTS)


def test_with_nothing_to_configure_everything_has_a_default() -> None:
    configuration = configured().unwrap()
    settings = configuration.settings
    assert configuration.accounts == (LOCAL_ACCOUNT,)
    assert (settings.mode, settings.bucket, settings.daily_limit, settings.requests_per_second) == (
        "mock",
        "local-artifacts",
        44,
        1.0,
    )
    assert (settings.max_parallel, settings.max_attempts, settings.call_timeout_seconds) == (8, 3, 60.0)
    assert (settings.invocation_timeout_seconds, settings.finalize_budget_seconds) == (540, 30)
    assert settings.max_image_bytes == 10 * 1024 * 1024
    assert settings.base_url == "https://api.chart-img.com"


@pytest.mark.parametrize("name", ["NAME-x", "gs://", "gs://a/b", "a", "UPPER", "a..b", "-ab", "gs://bucket/path"])
def test_a_bucket_that_is_none_is_refused(name: str) -> None:
    (problem,) = configured(CHARTS_BUCKET=name).failure()
    assert problem.where == "CHARTS_BUCKET"


@pytest.mark.parametrize("name", ["my-bucket", "gs://my-bucket", "gs://my-bucket/"])
def test_a_bucket_may_be_a_name_or_a_uri(name: str) -> None:
    assert configured(CHARTS_BUCKET=name).unwrap().settings.bucket == "my-bucket"


@pytest.mark.parametrize(
    "url",
    [
        "https://api.chart-img.com",
        "https://x:8443/",
        "http://127.0.0.1:80",
        "http://localhost:1",
        "http://[::1]:8080",
    ],
)
def test_an_origin_is_https_or_this_machine(url: str) -> None:
    assert configured(CHART_IMG_BASE_URL=url).unwrap().settings.base_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://api.chart-img.com",
        "ftp://x",
        "https://",
        "x",
        "https://u:p@x",
        "https://x/path",
        "https://x?q",
        "http://10.0.0.1",
        "https://[",
        "https://x:99999",
        "http://localhost.evil.com",
    ],
)
def test_any_other_origin_is_refused(url: str) -> None:
    (problem,) = configured(CHART_IMG_BASE_URL=url).failure()
    assert problem.where == "CHART_IMG_BASE_URL"
    assert "u:p" not in problem.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CHARTS_API_MODE", "live"),
        ("CHART_IMG_DAILY_LIMIT", "-1"),
        ("CHART_IMG_DAILY_LIMIT", "many"),
        ("CHART_IMG_REQUESTS_PER_SECOND", "0"),
        ("CHART_IMG_REQUESTS_PER_SECOND", "nan"),
        ("CHART_IMG_REQUESTS_PER_SECOND", "inf"),
        ("CHART_IMG_REQUESTS_PER_SECOND", "x"),
        ("CHART_IMG_TIMEOUT_SECONDS", "-5"),
        ("CHARTS_MAX_PARALLEL", "0"),
        ("CHARTS_MAX_PARALLEL", "257"),
        ("CHARTS_MAX_ATTEMPTS", "0"),
        ("CHARTS_MAX_IMAGE_BYTES", "1.5"),
        ("INVOCATION_TIMEOUT_SECONDS", "٣"),
        ("FINALIZE_BUDGET_SECONDS", "540"),
        ("LOG_LEVEL", "LOUD"),
    ],
)
def test_a_bad_value_names_its_variable(name: str, text: str) -> None:
    (problem,) = configured(**{name: text}).failure()
    assert problem.where == name


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert configured(CHARTS_BUCKET="", CHARTS_MAX_PARALLEL="").unwrap() == configured().unwrap()


def test_an_empty_variable_that_is_required_is_a_problem() -> None:
    problems = parse_configuration({"CHARTS_BUCKET": Given("", "CHARTS_BUCKET")}, DEFAULTS).failure()
    assert {problem.where for problem in problems} == {"CHARTS_BUCKET", "CHARTS_API_MODE"}


def test_all_problems_are_said_at_once() -> None:
    assert len(configured(CHARTS_BUCKET="X", LOG_LEVEL="x", CHARTS_API_MODE="x").failure()) == 3


@pytest.mark.parametrize("mode", ["real", "record"])
def test_modes_that_call_need_accounts(mode: str) -> None:
    (problem,) = configured(CHARTS_API_MODE=mode, CHART_IMG_ACCOUNTS_JSON=" ").failure()
    assert problem.where == "CHART_IMG_ACCOUNTS_JSON"


def test_record_is_refused_in_production() -> None:
    accounts = '[{"id": "a", "apiKey": "k"}]'
    (problem,) = configured(CHARTS_API_MODE="record", ENV="prod", CHART_IMG_ACCOUNTS_JSON=accounts).failure()
    assert problem.where == "CHARTS_API_MODE"
    defaults = {**LOCAL_DEFAULTS, "CHARTS_API_MODE": "record"}
    given = {"ENV": Given("prod", "ENV"), "CHART_IMG_ACCOUNTS_JSON": Given(accounts, "x")}
    assert parse_configuration(given, defaults).failure() == (problem,)


def test_every_variable_is_documented_by_name() -> None:
    assert set(LOCAL_DEFAULTS) | {"CHART_IMG_ACCOUNTS_JSON"} == set(VARIABLES)


# Accounts.


def accounts(*rows: Any) -> Any:
    return parse_accounts(json.dumps(list(rows)), "ACCOUNTS")


def test_accounts_keep_their_order_and_what_their_records_state() -> None:
    parsed = accounts(
        {"id": "b", "apiKey": "k1", "extra": 1},
        {"id": "a", "apiKey": "k2", "dailyLimit": 500, "requestsPerSecond": 10},
    ).unwrap()
    assert real_policies(parsed, 44, 1.0) == (
        AccountPolicy(id="b", daily_limit=44, requests_per_second=1.0),
        AccountPolicy(id="a", daily_limit=500, requests_per_second=10),
    )
    assert mock_policies(parsed) == (
        AccountPolicy(id="b", daily_limit=None, requests_per_second=None),
        AccountPolicy(id="a", daily_limit=500, requests_per_second=None),
    )


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ("text", "ACCOUNTS[0]"),
        ({"apiKey": "k"}, "ACCOUNTS[0].id"),
        ({"id": "a/b", "apiKey": "k"}, "ACCOUNTS[0].id"),
        ({"id": "..", "apiKey": "k"}, "ACCOUNTS[0].id"),
        ({"id": "__a__", "apiKey": "k"}, "ACCOUNTS[0].id"),
        ({"id": "a"}, "ACCOUNTS[0].apiKey"),
        ({"id": "a", "apiKey": ""}, "ACCOUNTS[0].apiKey"),
        ({"id": "a", "apiKey": f"{CANARY}\n"}, "ACCOUNTS[0].apiKey"),
        ({"id": "a", "apiKey": f"{CANARY} x"}, "ACCOUNTS[0].apiKey"),
        ({"id": "a", "apiKey": [CANARY]}, "ACCOUNTS[0].apiKey"),
        ({"id": "a", "apiKey": "k", "dailyLimit": -1}, "ACCOUNTS[0].dailyLimit"),
        ({"id": "a", "apiKey": "k", "dailyLimit": True}, "ACCOUNTS[0].dailyLimit"),
        ({"id": "a", "apiKey": "k", "dailyLimit": 1.5}, "ACCOUNTS[0].dailyLimit"),
        ({"id": "a", "apiKey": "k", "requestsPerSecond": 0}, "ACCOUNTS[0].requestsPerSecond"),
        ({"id": "a", "apiKey": "k", "requestsPerSecond": "1"}, "ACCOUNTS[0].requestsPerSecond"),
    ],
)
def test_a_bad_account_names_its_field_and_never_its_key(row: Any, where: str) -> None:
    (problem,) = accounts(row).failure()
    assert problem.where == where
    assert CANARY not in str(problem)


@pytest.mark.parametrize("text", ["", "{", f'[{{"apiKey": "{CANARY}"', "[]", "{}", "null", f'"{CANARY}"'])
def test_what_is_no_list_of_accounts_is_refused_without_being_shown(text: str) -> None:
    (problem,) = parse_accounts(text, "ACCOUNTS").failure()
    assert CANARY not in str(problem)


def test_one_id_or_one_key_twice_is_refused() -> None:
    problems = accounts({"id": "a", "apiKey": CANARY}, {"id": "a", "apiKey": CANARY}, "text").failure()
    assert [problem.where for problem in problems] == ["ACCOUNTS[2]", "ACCOUNTS[1].id", "ACCOUNTS[1].apiKey"]
    assert CANARY not in str(problems)


# Secrets.


def test_a_secret_never_prints_itself() -> None:
    secret = Secret(CANARY)
    for text in (str(secret), repr(secret), f"{secret}", f"{[secret]!r}", f"{secret!s:>40}"):
        assert CANARY not in text
    for spread in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled") as caught:
            spread(secret)
        assert CANARY not in str(caught.value)
    assert secret.reveal() == CANARY


def test_secrets_are_equal_by_value() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


def test_secrets_are_masked_in_text_whatever_their_case() -> None:
    assert without_secrets(f"key={CANARY.upper()}, {CANARY}", [Secret(CANARY), Secret("x.")]) == "key=***, ***"


# Documents and errors.


@pytest.mark.parametrize("value", [[], None, "text", 7])
def test_a_flow_run_that_is_no_object_is_unusable(value: Any) -> None:
    assert len(parse_flow_run(value).failure()) == 1


@pytest.mark.parametrize("run_id", [None, "", 7, "a/b", "..", ".x", "a\\b", "a\nb", "x" * 201, "\ud800"])
def test_a_flow_run_without_a_usable_id_is_unusable(run_id: Any) -> None:
    assert not is_usable_id(run_id)
    assert [one.where for one in parse_flow_run(a_flow_run(runId=run_id)).failure()] == ["runId"]


def test_everything_unusable_is_said_at_once() -> None:
    assert [one.where for one in parse_flow_run({"steps": []}).failure()] == ["runId", "steps"]


def test_a_path_quotes_what_is_no_plain_name() -> None:
    assert (
        document_path("steps", "charts:1M", "inputs", "requests", 0, "x")
        == 'steps["charts:1M"].inputs.requests[0].x'
    )
    assert document_path(0) == "[0]"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "a number"),
        (1.5, "a number"),
        ("", "a string"),
        ({}, "an object"),
        ([], "a list"),
        (b"", "a bytes"),
    ],
)
def test_values_are_called_what_json_calls_them(value: object, kind: str) -> None:
    assert kind_of(value) == kind


def test_messages_and_details_stay_within_their_bounds() -> None:
    problems = [Problem(f"steps.{i}", "x" * 200) for i in range(200)]
    error = invalid("wrong", problems)
    assert len(error.message) == 1_000
    assert error.details is not None
    assert len(json.dumps(error.details)) <= MAX_DETAILS_BYTES
    assert error.details["truncated"]
    assert error.details["problems"][0] == {"path": "steps.0", "message": "x" * 200}


def test_details_that_cannot_be_shortened_are_left_out() -> None:
    error = step_error("X", "y", {"text": "x" * 9_000, "list": []})
    assert error.details == {"omitted": "9024 bytes of details"}
