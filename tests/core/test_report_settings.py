from __future__ import annotations

from typing import Any

import pytest
from returns.result import Failure, Success

from core.problems import Problems
from core.reports.settings import (
    CLOUD_DEFAULTS,
    DEFAULTS,
    LOCAL_DEFAULTS,
    VARIABLES,
    ReportConfiguration,
    parse_report_configuration,
)
from core.secrets import Secret
from core.settings import Given
from tests.report_world import GEMINI_KEY

CLOUD = {"ARTIFACTS_BUCKET": "my-bucket", "GEMINI_API_KEY": GEMINI_KEY}


def parse(texts: dict[str, str], defaults: Any = CLOUD_DEFAULTS) -> ReportConfiguration | Problems:
    given = {name: Given(text, name) for name, text in texts.items()}
    result = parse_report_configuration(given, defaults)
    return result.failure() if isinstance(result, Failure) else result.unwrap()


def configuration(texts: dict[str, str], defaults: Any = CLOUD_DEFAULTS) -> ReportConfiguration:
    found = parse(texts, defaults)
    assert isinstance(found, ReportConfiguration), found
    return found


def names(texts: dict[str, str], defaults: Any = CLOUD_DEFAULTS) -> list[str]:
    found = parse(texts, defaults)
    return [] if isinstance(found, ReportConfiguration) else [one.where for one in found]


def test_4_31_in_the_cloud_bucket_and_key_are_enough() -> None:
    found = configuration(CLOUD)
    settings = found.settings
    assert found.api_key == Secret(GEMINI_KEY)
    assert (settings.bucket, settings.prefix, settings.mode, settings.env) == ("my-bucket", "", "real", "prod")
    assert (settings.prompts_collection, settings.schemas_collection) == ("llm_prompts", "llm_schemas")


def test_4_31_the_times_are_those_of_the_facts() -> None:
    settings = configuration(CLOUD).settings
    assert settings.invocation_timeout_seconds == 780
    assert settings.call_timeout_seconds == 600
    assert settings.finalize_budget_seconds == 120


def test_4_31_what_is_required_is_missed_all_at_once() -> None:
    assert names({}) == ["ARTIFACTS_BUCKET", "GEMINI_API_KEY"]


def test_on_one_machine_nothing_is_required() -> None:
    found = configuration({}, LOCAL_DEFAULTS)
    assert (found.api_key, found.settings.mode, found.settings.bucket) == (None, "mock", "local-artifacts")


WRONG = {
    "ARTIFACTS_BUCKET": "gs://b/with/a/path",
    "ARTIFACTS_PREFIX": "a/../b",
    "LLM_API_MODE": "pretend",
    "GEMINI_BASE_URL": "http://example.com",
    "GEMINI_TIMEOUT_SECONDS": "soon",
    "INVOCATION_TIMEOUT_SECONDS": "987654321",
    "FINALIZE_BUDGET_SECONDS": "-1",
    "LLM_PROMPTS_COLLECTION": "a/b",
    "LLM_SCHEMAS_COLLECTION": "..",
    "LOG_LEVEL": "LOUD",
    "GEMINI_API_KEY": f"{GEMINI_KEY} with spaces",
}


def test_4_31_all_that_is_wrong_is_said_at_once_by_names_and_never_by_values() -> None:
    assert names(WRONG) == list(WRONG)
    said = repr(parse(WRONG))
    assert [value for value in WRONG.values() if value in said] == []


@pytest.mark.parametrize("name", sorted(WRONG))
def test_4_31_each_wrong_value_is_named(name: str) -> None:
    assert names({**CLOUD, name: WRONG[name]}) == [name]


@pytest.mark.parametrize("mode", ["real", "record"])
def test_4_31_1_the_key_is_required_where_the_model_is_asked(mode: str) -> None:
    assert names({"LLM_API_MODE": mode}, LOCAL_DEFAULTS) == ["GEMINI_API_KEY"]
    assert names({"LLM_API_MODE": mode, "GEMINI_API_KEY": "  "}, LOCAL_DEFAULTS) == ["GEMINI_API_KEY"]


@pytest.mark.parametrize("key", ["schlüssel", "a\x07b", "two words"])
def test_4_31_1_a_key_that_cannot_be_sent_is_refused_and_not_shown(key: str) -> None:
    assert names({**CLOUD, "GEMINI_API_KEY": key}) == ["GEMINI_API_KEY"]
    assert key not in repr(parse({**CLOUD, "GEMINI_API_KEY": key}))


def test_4_31_2_a_configuration_never_prints_its_key() -> None:
    found = configuration({**CLOUD, "GEMINI_API_KEY": f" {GEMINI_KEY}\n"})
    assert found.api_key == Secret(GEMINI_KEY)
    assert GEMINI_KEY not in f"{found!r} {found}"


@pytest.mark.parametrize(("text", "models"), [("", None), (" , ", None), ("a, b,,a", {"a", "b"})])
def test_an_unset_list_of_models_allows_all(text: str, models: Any) -> None:
    assert configuration({**CLOUD, "GEMINI_ALLOWED_MODELS": text}).settings.allowed_models == models


@pytest.mark.parametrize(
    ("text", "prefix"), [("", ""), ("/", ""), ("reports/", "reports"), ("a/b-c/d=1", "a/b-c/d=1")]
)
def test_a_prefix_is_a_path(text: str, prefix: str) -> None:
    assert configuration({**CLOUD, "ARTIFACTS_PREFIX": text}).settings.prefix == prefix


@pytest.mark.parametrize("reserve", ["780", "781"])
def test_4_32_the_reserve_must_leave_time_to_work(reserve: str) -> None:
    assert names({**CLOUD, "FINALIZE_BUDGET_SECONDS": reserve}) == ["FINALIZE_BUDGET_SECONDS"]


def test_recording_is_refused_in_production() -> None:
    assert names({**CLOUD, "LLM_API_MODE": "record"}) == ["LLM_API_MODE"]
    assert names({**CLOUD, "LLM_API_MODE": "record", "ENV": "dev"}) == []


def test_every_default_is_the_default_of_a_variable() -> None:
    assert {*DEFAULTS, *CLOUD_DEFAULTS, *LOCAL_DEFAULTS} <= set(VARIABLES)
    assert isinstance(parse_report_configuration({}, LOCAL_DEFAULTS), Success)
