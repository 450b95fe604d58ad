"""The service while Firestore, Cloud Storage and Chart-IMG go wrong: every step still ends as it should."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from core.charts.usage import USAGE_COLLECTION
from interpreters.sandbox.chart_img import GARBAGE, RESET, WRONG_TYPE, Fault
from tests.end_to_end.service_world import (
    FIVE,
    MODES,
    TWO,
    World,
    a_world,
    canary_accounts,
    claims,
    own_firestore,
    own_storage,
)

ABORTED = grpc.StatusCode.ABORTED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED
INTERNAL = grpc.StatusCode.INTERNAL
MOST_COMMITS_WHEN_SLOW = 6
"""A claim, a finalize, and a few reservations: slots may be missed until it is known how slow the database is."""


@pytest.fixture(scope="module", params=MODES)
def running(request: pytest.FixtureRequest) -> Iterator[World]:
    with a_world({"FIRESTORE_CONCURRENCY": request.param}) as world:
        yield world


@pytest.fixture
def world(running: World) -> Iterator[World]:
    with running.scenario() as scenario:
        yield scenario


def done(world: World, run_id: str, pictures: int) -> None:
    """Assert that the step succeeded, once, with so many pictures."""
    step = world.await_end(run_id)
    assert step["status"] == "SUCCEEDED", (step.get("error"), world.said(run_id))
    assert len(world.manifest(run_id)["items"]) == pictures
    assert world.await_entry("cloud_event_finished", run_id)["status"] == "ok"
    assert len(world.entries("step_completed", run_id)) == 1
    assert len(claims(world, run_id)) == 1


@pytest.fixture(scope="module")
def hasty() -> Iterator[World]:
    """Run a service that waits no longer than a second for a chart."""
    with a_world({"CHART_IMG_TIMEOUT_SECONDS": "1"}) as world:
        yield world


@pytest.fixture
def impatient(hasty: World) -> Iterator[World]:
    with hasty.scenario() as scenario:
        yield scenario


# Firestore.


def _is_write(collection: str, field: str) -> Callable[[Any], bool]:
    """Return whether a commit writes a field of a document of a collection."""

    def matches(request: Any) -> bool:
        return any(
            f"/{collection}/" in write.update.name
            and (not field or any(path.endswith(field) for path in write.update_mask.field_paths))
            for write in request.writes
        )

    return matches


def _is_read(collection: str) -> Callable[[Any], bool]:
    return lambda request: any(f"/{collection}/" in name for name in request.documents)


COMMITS = {
    "claim": _is_write("flow_runs", ".claim"),
    "reservation": _is_write(USAGE_COLLECTION, ""),
    "finalize": _is_write("flow_runs", ".finishedAt"),
}


@own_firestore
@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize(
    ("code", "when"),
    [
        (UNAVAILABLE, "before"),
        (UNAVAILABLE, "after"),
        (ABORTED, "before"),
        (DEADLINE_EXCEEDED, "before"),
        (DEADLINE_EXCEEDED, "after"),
        (INTERNAL, "after"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_commit_that_fails_is_settled_whether_it_was_applied_or_not(
    world: World, commit: str, code: Any, when: Any
) -> None:
    used = sum(one["usageToday"] for one in world.usages().values())
    world.sandbox.firestore.faults.add("Commit", when=when, code=code, matching=COMMITS[commit])
    run_id = world.write()
    done(world, run_id, 2)
    assert world.sandbox.firestore.faults.remaining() == 0
    assert sum(one["usageToday"] for one in world.usages().values()) == used + 2, "each call is counted once"


@own_firestore
def test_a_claim_that_is_aborted_more_often_than_the_library_tries_is_settled_in_the_end(world: World) -> None:
    world.sandbox.firestore.faults.add("Commit", code=ABORTED, times=6, matching=COMMITS["claim"])
    done(world, world.write(), 2)
    assert world.sandbox.firestore.faults.remaining() == 0


@own_firestore
@pytest.mark.parametrize("collection", ["flow_runs", "chart_templates", USAGE_COLLECTION])
@pytest.mark.parametrize("code", [ABORTED, UNAVAILABLE, DEADLINE_EXCEEDED], ids=lambda value: value.name)
def test_a_read_that_fails_is_tried_again(world: World, collection: str, code: Any) -> None:
    world.sandbox.firestore.faults.add("BatchGetDocuments", code=code, times=2, matching=_is_read(collection))
    run_id = world.write()
    world.await_entry("step_completed", run_id)
    done(world, run_id, 2)


@own_firestore
@pytest.mark.parametrize("code", [ABORTED, UNAVAILABLE, INTERNAL], ids=lambda value: value.name)
def test_a_transaction_that_does_not_begin_is_begun_again(world: World, code: Any) -> None:
    world.sandbox.firestore.faults.add("BeginTransaction", code=code, times=2)
    done(world, world.write(), 2)


@own_firestore
def test_a_rollback_that_fails_hides_nothing(world: World) -> None:
    world.sandbox.firestore.faults.add("Commit", code=INTERNAL, matching=COMMITS["claim"])
    world.sandbox.firestore.faults.add("Rollback", code=INTERNAL, times=2)
    done(world, world.write(), 2)


@own_firestore
def test_a_slow_database_makes_steps_slow_and_no_chart_miss_its_slot_again_and_again(world: World) -> None:
    world.sandbox.firestore.latency_seconds = 0.1
    world.sandbox.firestore.tally.clear()
    try:
        run_id = world.write(charts=FIVE)
        world.await_entry("cloud_event_finished", run_id)
        commits = world.sandbox.firestore.calls["Commit"]
    finally:
        world.sandbox.firestore.latency_seconds = 0.0
    done(world, run_id, 5)
    assert commits <= 1 + MOST_COMMITS_WHEN_SLOW


# Cloud Storage.


def _is_png(method: str, target: str) -> bool:
    return "ifGenerationMatch=0" in target


UPLOADS: dict[str, Callable[[str, str], bool]] = {
    "png": _is_png,
    "manifest": lambda method, target: not _is_png(method, target),
}


@own_storage
@pytest.mark.parametrize("upload", UPLOADS)
@pytest.mark.parametrize(
    ("when", "drop"), [("before", False), ("after", False), ("before", True), ("after", True)],
    ids=["503", "503 though stored", "dropped", "dropped though stored"],
)  # fmt: skip
def test_an_upload_without_a_good_answer_is_sent_again_and_stored_once(
    impatient: World, upload: str, when: Any, drop: bool
) -> None:
    faults = impatient.sandbox.storage.faults
    faults.add(when, matching=UPLOADS[upload], kind="objects.insert", drop_connection=drop)
    run_id = impatient.write()
    done(impatient, run_id, 2)
    assert faults.is_spent
    assert len(impatient.objects(run_id)) == 3


# Chart-IMG.


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=500), id="500"),
        pytest.param(Fault(status=503), id="503"),
        pytest.param(Fault(delay_seconds=1.5), id="a timeout"),
        pytest.param(Fault(drip_seconds=0.01), id="a drip"),
        pytest.param(RESET, id="a reset"),
        pytest.param(Fault(cut_at=1_000), id="half a picture"),
    ],
)
def test_a_chart_that_fails_once_is_drawn_at_the_next_try(impatient: World, fault: Fault) -> None:
    asked = len(impatient.sandbox.chart_img.ledger.asked())
    impatient.sandbox.chart_img.faults.add(fault)
    done(impatient, impatient.write(), 2)
    assert len(impatient.sandbox.chart_img.ledger.asked()) == asked + 3


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        pytest.param(GARBAGE, 1, id="garbage"),
        pytest.param(WRONG_TYPE, 1, id="another type"),
        pytest.param(Fault(status=400), 1, id="400"),
        pytest.param(Fault(status=500), 3, id="500 always"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_a_failure_in_the_manifest(
    impatient: World, fault: Fault, calls: int
) -> None:
    impatient.sandbox.chart_img.faults.add(fault, times=calls, matching=_is_obv)
    run_id = impatient.write(charts=(*TWO, FIVE[4]), min_images=2)
    done(impatient, run_id, 2)
    (failure,) = impatient.manifest(run_id)["failures"]
    assert failure["request"]["chartTemplateId"] == FIVE[4]
    assert failure["error"]["code"] == "CHART_API_FAILED"


def _is_obv(asked: Any) -> bool:
    return "On Balance Volume" in str(asked.body)


def test_too_few_charts_fail_the_step_and_the_event_is_settled(impatient: World) -> None:
    impatient.sandbox.chart_img.faults.add(GARBAGE, times=None)
    run_id = impatient.write(min_images=1)
    step = impatient.await_end(run_id)
    assert (step["status"], step["error"]["code"]) == ("FAILED", "CHART_API_FAILED")
    assert impatient.await_entry("cloud_event_finished", run_id)["status"] == "failed"
    assert impatient.manifest(run_id)["items"] == []


@own_firestore
@pytest.mark.parametrize("message", ["Limit Exceeded", "Too Many Requests"])
def test_an_account_that_the_provider_says_is_used_up_is_left_for_another(impatient: World, message: str) -> None:
    fault = Fault(status=429, message=message)
    impatient.sandbox.chart_img.faults.add(fault, times=None, matching=lambda asked: asked.account_id == "acc1")
    run_id = impatient.write(charts=FIVE)
    done(impatient, run_id, 5)
    assert not impatient.entries("chart_api_limit_exceeded", run_id)
    limits = {one: usage["usageToday"] for one, usage in impatient.usages().items()}
    assert limits["acc1"] == 5_000
    assert limits["acc2"] < 5_000


@own_firestore
def test_accounts_that_the_provider_says_are_all_used_up_fail_the_step(impatient: World) -> None:
    impatient.sandbox.chart_img.faults.add(Fault(status=429, message="Limit Exceeded"), times=None)
    run_id = impatient.write(charts=FIVE)
    step = impatient.await_end(run_id)
    assert (step["status"], step["error"]["code"]) == ("FAILED", "CHART_API_LIMIT_EXCEEDED")
    impatient.await_entry("cloud_event_finished", run_id)
    assert len(impatient.entries("chart_api_limit_exceeded", run_id)) == 1


# Limits and keys.


@own_firestore
def test_more_charts_than_the_accounts_have_calls_fail_with_the_limit_and_one_alert() -> None:
    with a_world(accounts=canary_accounts(per_day=2)) as running, running.scenario() as world:
        run_id = world.write(charts=FIVE)
        step = world.await_end(run_id)
        assert (step["status"], step["error"]["code"]) == ("FAILED", "CHART_API_LIMIT_EXCEEDED")
        world.await_entry("cloud_event_finished", run_id)
        assert len(world.manifest(run_id)["items"]) == 4
        assert len(world.sandbox.chart_img.ledger.asked()) == 4
        (alert,) = world.entries("chart_api_limit_exceeded", run_id)
        assert alert["severity"] == "ERROR"
        assert alert["exhaustedAccounts"] == ["acc1", "acc2"]


def test_a_key_that_is_revoked_in_the_middle_is_left_for_another_and_no_key_at_all_fails_the_step() -> None:
    with a_world(accounts=canary_accounts(per_second=5)) as running:
        with running.scenario() as world:
            world.service.at_event("chart_api_call_finished", lambda: world.sandbox.chart_img.revoke("acc1"))
            run_id = world.write(charts=FIVE)
            done(world, run_id, 5)
            (rejected,) = world.entries("chart_api_key_rejected", run_id)
            assert rejected["accountId"] == "acc1"
        with running.scenario() as world:
            world.service.at_event("chart_api_call_finished", lambda: world.sandbox.chart_img.revoke("acc2"))
            run_id = world.write(charts=FIVE)
            step = world.await_end(run_id)
            assert (step["status"], step["error"]["code"]) == ("FAILED", "CHART_API_FAILED")
            asked = [str(one.account_id) for one in world.sandbox.chart_img.ledger.asked() if one.refused]
            assert sorted(set(asked)) == ["acc1", "acc2"]
            assert not world.entries("chart_api_limit_exceeded", run_id)
