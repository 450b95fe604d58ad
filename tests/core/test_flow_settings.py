from __future__ import annotations

import pytest

from core.flow.settings import CLOUD_DEFAULTS, LOCAL_DEFAULTS, VARIABLES, FlowSettings, parse_flow_settings
from core.settings import Given


def given(**variables: str) -> dict[str, Given]:
    return {name: Given(text, name) for name, text in variables.items()}


def test_nothing_needs_to_be_set() -> None:
    local = parse_flow_settings({}, LOCAL_DEFAULTS).unwrap()
    assert local == FlowSettings(
        step_max_attempts=3, invocation_timeout_seconds=540, env="local", log_level="INFO"
    )
    assert parse_flow_settings({}, CLOUD_DEFAULTS).unwrap().env == "prod"
    assert set(VARIABLES) == set(LOCAL_DEFAULTS) == set(CLOUD_DEFAULTS)


def test_every_variable_can_be_set() -> None:
    variables = given(
        STEP_MAX_ATTEMPTS="1", INVOCATION_TIMEOUT_SECONDS="60", ENV="staging", LOG_LEVEL="DEBUG", OTHER="x"
    )
    assert parse_flow_settings(variables, LOCAL_DEFAULTS).unwrap() == FlowSettings(
        step_max_attempts=1, invocation_timeout_seconds=60, env="staging", log_level="DEBUG"
    )


@pytest.mark.parametrize("text", ["0", "101", "-1", "three", "1.5"])
def test_a_number_of_attempts_that_makes_no_sense_is_refused(text: str) -> None:
    (problem,) = parse_flow_settings(given(STEP_MAX_ATTEMPTS=text), LOCAL_DEFAULTS).failure()
    assert str(problem) == "STEP_MAX_ATTEMPTS: must be a whole number from 1 to 100"


def test_everything_that_is_wrong_is_said_at_once() -> None:
    wrong = given(STEP_MAX_ATTEMPTS="0", INVOCATION_TIMEOUT_SECONDS="0", LOG_LEVEL="LOUD")
    problems = parse_flow_settings(wrong, LOCAL_DEFAULTS).failure()
    assert [one.where for one in problems] == ["STEP_MAX_ATTEMPTS", "INVOCATION_TIMEOUT_SECONDS", "LOG_LEVEL"]
