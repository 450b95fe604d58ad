from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.flow.leases import (
    attempts_of,
    is_abandoned,
    is_forgotten,
    is_too_late,
    lease_end,
    steps_under_lease,
)
from effects import LeasePolicy
from effects.moments import rfc3339
from tests.builders import NOW, a_claim, a_flow_run, a_plain_step

POLICY = LeasePolicy(max_attempts=3)
ASSUMED = LeasePolicy(max_attempts=3, assume_lease_seconds=600)
GONE = LeasePolicy(max_attempts=3, holders_gone=True)


def ago(seconds: int) -> str:
    return rfc3339(NOW - timedelta(seconds=seconds))


def abandoned(policy: LeasePolicy, outputs: Any, run: dict[str, Any] | None = None, **step: Any) -> bool:
    created = {"createdAt": ago(10_000)}
    running = a_plain_step("RUNNING", outputs=outputs, **{**created, **step})
    return is_abandoned(a_flow_run({"a": running}, **(run or created)), running, policy, NOW)


@pytest.mark.parametrize(("attempt", "count"), [(2, 2), (0, 0), ("2", 0), (2.0, 0), (None, 0), ([], 0)])
def test_only_a_whole_number_counts_attempts(attempt: Any, count: int) -> None:
    assert attempts_of(a_plain_step("RUNNING", outputs=a_claim(attempt))) == count


def test_a_step_that_was_never_claimed_has_no_attempts_and_no_lease() -> None:
    step = a_plain_step("RUNNING")
    assert (attempts_of(step), lease_end(step)) == (0, None)


@pytest.mark.parametrize(("seconds", "is_over"), [(-1, False), (0, True), (1, True)])
def test_a_lease_has_run_out_at_its_end(seconds: int, is_over: bool) -> None:
    outputs = a_claim(1, ago(seconds))
    assert abandoned(POLICY, outputs) is is_over
    running = {"a": a_plain_step("RUNNING", outputs=outputs), "b": a_plain_step("READY", outputs=outputs)}
    assert list(steps_under_lease(a_flow_run(running), NOW)) == ([] if is_over else ["a"])


@pytest.mark.parametrize("lease", [None, "soon", "2025-12-15", 7])
def test_without_a_lease_a_step_is_left_alone(lease: Any) -> None:
    assert not abandoned(POLICY, a_claim(1, lease, startedAt=ago(9_000)))


def test_a_stated_lease_stands_whatever_is_assumed() -> None:
    assert not abandoned(ASSUMED, a_claim(1, ago(-1), startedAt=ago(9_000)))


@pytest.mark.parametrize(("seconds", "is_over"), [(599, False), (600, True)])
def test_an_assumed_lease_counts_from_the_last_sign_of_life(seconds: int, is_over: bool) -> None:
    young = ago(seconds)
    assert abandoned(ASSUMED, a_claim(1, startedAt=young)) is is_over
    assert abandoned(ASSUMED, {"execution": {"timing": {"startedAt": young}}}) is is_over
    assert abandoned(ASSUMED, {}, createdAt=young) is is_over
    assert abandoned(ASSUMED, {}, {"createdAt": ago(10_000), "updatedAt": young}) is is_over
    assert abandoned(ASSUMED, {}, {"createdAt": young}) is is_over


def test_a_step_without_any_sign_of_life_is_abandoned_once_a_lease_is_assumed() -> None:
    assert abandoned(ASSUMED, {}, {"createdAt": None}, createdAt=None)


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_the_ends_of_time_are_moments_too(moment: str) -> None:
    is_past = moment.startswith("0001")
    assert abandoned(ASSUMED, {}, createdAt=moment) is is_past
    assert abandoned(POLICY, a_claim(1, moment)) is is_past


@pytest.mark.parametrize("outputs", [{}, a_claim(1), a_claim(1, ago(-600)), a_claim(1, ago(600))])
def test_where_the_holders_are_gone_every_lease_has_run_out(outputs: Any) -> None:
    assert abandoned(GONE, outputs)


def test_an_assumed_lease_may_be_longer_than_time_itself() -> None:
    assert not abandoned(LeasePolicy(max_attempts=3, assume_lease_seconds=10**18), {})


# Steps that nobody took.

RETOLD = LeasePolicy(max_attempts=3, retell_after_seconds=600)


@pytest.mark.parametrize(("seconds", "is_so"), [(599, False), (600, True)])
def test_a_ready_step_is_forgotten_when_its_document_was_long_not_touched(seconds: int, is_so: bool) -> None:
    run = {"createdAt": ago(10_000), "updatedAt": ago(seconds)}
    assert is_forgotten(a_flow_run({"a": a_plain_step("READY")}, **run), RETOLD, NOW) is is_so
    assert is_forgotten(a_flow_run({"a": a_plain_step("READY")}, createdAt=ago(seconds)), RETOLD, NOW) is is_so


@pytest.mark.parametrize(
    ("policy", "steps", "status"),
    [
        (POLICY, {"a": a_plain_step("READY")}, "RUNNING"),
        (RETOLD, {"a": a_plain_step("READY")}, "FAILED"),
        (RETOLD, {"a": a_plain_step("RUNNING"), "b": a_plain_step("PENDING")}, "RUNNING"),
        (RETOLD, {}, "RUNNING"),
        (RETOLD, "no steps", "RUNNING"),
    ],
)
def test_nobody_is_told_again_where_no_step_waits(policy: LeasePolicy, steps: Any, status: str) -> None:
    flow_run = {**a_flow_run({}, status=status, createdAt=ago(10_000)), "steps": steps}
    assert not is_forgotten(flow_run, policy, NOW)


@pytest.mark.parametrize(("seconds", "is_late"), [(0, False), (29, False), (30, True)])
def test_a_write_is_too_late_half_a_minute_after_it_should_have_been_given_up(seconds: int, is_late: bool) -> None:
    assert is_too_late(NOW, NOW + timedelta(seconds=seconds)) is is_late
