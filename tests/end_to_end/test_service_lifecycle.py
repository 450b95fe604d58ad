"""The service from its start to its end: configuration, racing processes, kills and SIGTERM."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from effects.moments import parse_moment
from interpreters.sandbox.chart_img import Fault
from tests.builders import CANARY
from tests.end_to_end.service_world import (
    FIVE,
    MODES,
    TERMINAL,
    TWO,
    Service,
    World,
    a_world,
    canary_accounts,
    claims,
    own_firestore,
    wait_until,
)

# Starting.

GOOD = {
    "GOOGLE_CLOUD_PROJECT": "sandbox",
    "CHARTS_BUCKET": "gs://charts",
    "CHART_IMG_ACCOUNTS_JSON": json.dumps([{"id": "acc1", "apiKey": CANARY}]),
}
BAD = {
    "GOOGLE_CLOUD_PROJECT": "Not A Project",
    "CHARTS_BUCKET": "gs://charts/with/a/path",
    "CHART_IMG_ACCOUNTS_JSON": json.dumps([{"id": "a b", "apiKey": CANARY, "dailyLimit": -7}, {"id": "acc2"}]),
    "CHARTS_API_MODE": "surreal",
    "CHART_IMG_BASE_URL": "http://example.com",
    "CHART_IMG_DAILY_LIMIT": "many-a-day",
    "CHART_IMG_REQUESTS_PER_SECOND": "-99",
    "CHARTS_MAX_PARALLEL": "few-at-once",
    "CHARTS_MAX_ATTEMPTS": "0",
    "CHARTS_MAX_IMAGE_BYTES": "large-ones",
    "FIRESTORE_DATABASE": "No_Database",
    "FIRESTORE_CONCURRENCY": "optimism",
    "FLOW_RUNS_COLLECTION": "flow/runs",
    "INVOCATION_TIMEOUT_SECONDS": "forever",
    "FINALIZE_BUDGET_SECONDS": "-31",
    "JOURNAL_URI": "s3://elsewhere",
    "JOURNAL_TEXTS": "perhaps",
    "LOG_LEVEL": "CHATTY",
}
CONFIGURATIONS: dict[str, tuple[dict[str, str], set[str]]] = {
    "everything wrong": (BAD, set(BAD)),
    "nothing given": ({}, {"GOOGLE_CLOUD_PROJECT", "CHARTS_BUCKET", "CHART_IMG_ACCOUNTS_JSON"}),
    "two that do not go together": (
        {**GOOD, "INVOCATION_TIMEOUT_SECONDS": "30", "FINALIZE_BUDGET_SECONDS": "30"},
        {"FINALIZE_BUDGET_SECONDS"},
    ),
    "accounts that are not JSON": ({**GOOD, "CHART_IMG_ACCOUNTS_JSON": CANARY}, {"CHART_IMG_ACCOUNTS_JSON"}),
}


@pytest.fixture(scope="module")
def refused() -> dict[str, tuple[Service, int | None]]:
    """Start the service with every bad configuration, two at a time; the worst in a fresh interpreter."""

    def start(variables: dict[str, str]) -> tuple[Service, int | None]:
        service = Service(variables, real=variables is BAD).launch()
        try:
            return service, service.join()
        finally:
            service.stop()

    with ThreadPoolExecutor(2) as threads:
        ended = threads.map(start, [variables for variables, _ in CONFIGURATIONS.values()])
        return dict(zip(CONFIGURATIONS, ended, strict=True))


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_a_service_that_is_configured_badly_names_every_variable_no_value_and_does_not_serve(
    case: str, refused: dict[str, tuple[Service, int | None]]
) -> None:
    variables, wrong = CONFIGURATIONS[case]
    service, code = refused[case]
    assert code not in {0, None}
    (entry,) = service.entries()
    assert (entry["event"], entry["severity"]) == ("config_error", "ERROR")
    named = {problem.partition(":")[0].partition("[")[0] for problem in entry["problems"]}
    assert named == wrong
    said = "".join([*service.stdout, *service.stderr])
    assert CANARY not in said
    for name in wrong & set(variables) - {
        "CHART_IMG_ACCOUNTS_JSON",
        "CHARTS_MAX_ATTEMPTS",
        "FINALIZE_BUDGET_SECONDS",
    }:
        assert variables[name] not in said, name
    assert all(line.startswith("{") for line in service.stderr), "nothing but the event is said"


# Two processes.


@own_firestore
@pytest.mark.parametrize(("mode", "real"), [*zip(MODES, (True, False), strict=True)])
def test_of_two_services_that_race_for_the_same_step_exactly_one_claims_it(mode: str, real: bool) -> None:
    variables = {"FIRESTORE_CONCURRENCY": mode}
    with (
        a_world(variables, services=2, accounts=canary_accounts(per_second=100), real=real) as running,
        running.scenario() as world,
    ):
        run_ids = [world.write(charts=TWO) for _ in range(6)]
        ended = [world.await_end(run_id) for run_id in run_ids]
        world.drain()
        assert {step["status"] for step in ended} == {"SUCCEEDED"}
        for run_id in run_ids:
            attempts = [one["claimed"] for one in world.entries("claim_attempt", run_id)]
            assert attempts.count(True) == 1, attempts
            assert len(claims(world, run_id)) == 1
        finished = Counter(one["status"] for one in world.entries("cloud_event_finished"))
        assert finished["retry"] == finished["failed"] == 0, "contention is not answered with 5xx"
        assert sum(one["usageToday"] for one in world.usages().values()) == 12
        assert len(world.sandbox.chart_img.ledger.asked()) == 12


# Killed and started again.


@pytest.fixture(scope="module")
def mortal() -> Iterator[World]:
    with a_world() as world:
        yield world


@pytest.fixture
def world(mortal: World) -> Iterator[World]:
    with mortal.scenario() as scenario:
        yield scenario


@pytest.mark.parametrize(
    "event",
    [
        "cloud_event_received",
        "ready_step_selected",
        "claim_attempt",
        "chart_api_call_started",
        "chart_api_call_finished",
        "png_written",
        "manifest_written",
        "step_completed",
    ],
)
def test_a_service_that_is_killed_leaves_a_step_that_is_done_or_under_a_lease(world: World, event: str) -> None:
    world.sandbox.chart_img.faults.add(Fault(delay_seconds=0.1), times=None)
    world.service.at_event(event, world.service.kill)
    run_id = world.write(charts=FIVE)
    wait_until(lambda: not world.service.is_running, f"the service dies at {event}")
    world.service.ensure_running()
    world.drain()
    step = world.step(run_id)
    if step["status"] not in TERMINAL:
        assert step["status"] == "RUNNING"
        lease_until = parse_moment(step["outputs"]["execution"]["claim"]["leaseUntil"])
        assert lease_until is not None
        assert lease_until > datetime.now(UTC)
    if event == "cloud_event_received":
        assert step["status"] == "SUCCEEDED", "nothing was claimed: the event is delivered again"
    if event == "step_completed":
        assert step["status"] == "SUCCEEDED"


def test_a_service_asked_to_end_ends_its_step_first(world: World) -> None:
    world.sandbox.chart_img.faults.add(Fault(delay_seconds=1.2), times=None)
    world.service.at_event("chart_api_call_started", world.service.terminate)
    run_id = world.write(charts=FIVE)
    assert world.await_end(run_id)["status"] == "SUCCEEDED"
    assert world.service.join(25) == 0
    assert world.await_entry("cloud_event_finished", run_id)["status"] == "ok"
