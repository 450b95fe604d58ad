"""The orchestrator in the cloud: whole flows, racing processes, dead workers and zombies, and the scheduler's call."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
import requests
from google.cloud.firestore import DELETE_FIELD

from core.flow.reaper import PAGE_SIZE
from effects.moments import parse_moment, rfc3339
from interpreters.sandbox.chart_img import Fault
from interpreters.sandbox.eventarc import Chances, Eventarc
from interpreters.sandbox.whole import PROJECT
from interpreters.shipped import FLOW_RUNS
from tests.builders import CANARY, STEP_ID, a_claim, a_flow_run, a_plain_step
from tests.end_to_end.service_world import (
    FIVE,
    MODES,
    ORCHESTRATOR,
    PATIENCE_SECONDS,
    QUICK,
    REAPER,
    TWO,
    WORKER,
    Service,
    World,
    a_run,
    a_world,
    canary_accounts,
    claims,
    history,
    own_firestore,
    post,
    protobuf_payload,
    wait_until,
)

pytestmark = own_firestore

SAMPLE: dict[str, Any] = json.loads((FLOW_RUNS / "candles_then_charts.json").read_text("utf-8"))
CANDLES = "candles:4h"
STEPS = tuple(SAMPLE["steps"])
QUIET_SECONDS = 0.3
SLOW = Fault(delay_seconds=30)
PAST = rfc3339(datetime.now(UTC) - timedelta(hours=1))
FUTURE = rfc3339(datetime.now(UTC) + timedelta(hours=1))
DENIED = grpc.StatusCode.PERMISSION_DENIED
ALWAYS = 100_000


@pytest.fixture(scope="module")
def pair() -> Iterator[World]:
    """Run a worker and an orchestrator, as the sandbox's own words suggest."""
    with a_world(others=(ORCHESTRATOR,), accounts=canary_accounts(per_second=20)) as world:
        yield world


@pytest.fixture
def world(pair: World) -> Iterator[World]:
    with pair.scenario() as scenario:
        yield scenario


@pytest.fixture(scope="module", params=MODES)
def racers(request: pytest.FixtureRequest) -> Iterator[World]:
    """Run two of each, and a reaper."""
    variables = {"FIRESTORE_CONCURRENCY": request.param}
    others = (ORCHESTRATOR, ORCHESTRATOR, REAPER)
    with a_world(variables, services=2, others=others, accounts=canary_accounts(per_second=20)) as world:
        yield world


@pytest.fixture
def crowd(racers: World) -> Iterator[World]:
    with racers.scenario() as scenario:
        yield scenario


@pytest.fixture(scope="module")
def scheduler() -> Iterator[World]:
    with a_world(services=0, others=(REAPER,)) as world:
        yield world


@pytest.fixture
def reaping(scheduler: World) -> Iterator[World]:
    """Begin with no flow_run at all."""
    for one in scheduler.database.collection("flow_runs").list_documents():
        one.delete()
    scheduler.changes.clear()
    with scheduler.scenario() as scenario:
        yield scenario


def write_sample(world: World) -> str:
    """Write the shipped flow, all PENDING, under an id of its own."""
    return world.put({**SAMPLE, "runId": f"20251215-120000_BTCUSDT_{uuid.uuid4().hex[:6]}"})


def give_candles(world: World, run_id: str) -> None:
    """Be the worker of candles, who is none of ours: claim the READY step and finalize it."""
    world.await_status(run_id, CANDLES, "READY")
    claim = a_claim(1, FUTURE, token=uuid.uuid4().hex)["execution"]["claim"]
    world.change_step(run_id, CANDLES, status="RUNNING", outputs__execution__claim=claim)
    uri = f"gs://candles/{run_id}/4h.json"
    world.change_step(run_id, CANDLES, status="SUCCEEDED", finishedAt=rfc3339(datetime.now(UTC)), outputs__uri=uri)


def moves(world: World, run_id: str, step_id: str) -> list[tuple[str | None, str]]:
    """Return every change of the step's status, in order."""
    pairs = [(old.get("status"), new["status"]) for old, new in history(world, run_id, step_id)]
    return [one for one in pairs if one[0] != one[1]]


def end_lease(world: World, run_id: str) -> None:
    """Let the lease of the step be over, before its time."""
    world.change_step(run_id, STEP_ID, outputs__execution__claim__leaseUntil=PAST)


def send(service: Service, run_id: str, body: bytes = b"", **attributes: str | None) -> tuple[int, str]:
    """Tell a service of a change of this run; return the answer's status, and the id of the event."""
    event_id = uuid.uuid4().hex
    subject = f"documents/flow_runs/{run_id}"
    return post(service.url, body, **{"subject": subject, "id": event_id, **attributes}), event_id


def reap(world: World, **query: str) -> tuple[int, dict[str, Any]]:
    """Call as a scheduler does; return the answer."""
    (service,) = world.of(REAPER)
    with requests.Session() as session:
        session.trust_env = False
        with session.post(service.url, params=query, timeout=PATIENCE_SECONDS) as response:
            return response.status_code, dict(response.json())


# Whole flows.


def assert_run_went_well(world: World, run_id: str) -> None:
    """Assert that the run succeeded, and that each step went its way exactly once."""
    run = world.run(run_id)
    assert run["status"] == "SUCCEEDED", (run.get("error"), world.said(run_id))
    assert run["progress"] == {
        "stepCounts": {
            "total": 3,
            "pending": 0,
            "ready": 0,
            "running": 0,
            "succeeded": 3,
            "failed": 0,
            "skipped": 0,
            "cancelled": 0,
        }
    }
    finished_at, *ends = (parse_moment(one["finishedAt"]) for one in (run, *run["steps"].values()))
    assert finished_at is not None
    assert all(one is not None and one <= finished_at for one in ends)
    for step_id in STEPS:
        assert moves(world, run_id, step_id) == [
            (None, "PENDING"),
            ("PENDING", "READY"),
            ("READY", "RUNNING"),
            ("RUNNING", "SUCCEEDED"),
        ]
        assert run["steps"][step_id]["outputs"]["execution"]["claim"]["attempt"] == 1
    assert len(world.objects(run_id)) == (3 + 1) + (2 + 1), "pictures and manifests"
    said = wait_until(lambda: _all_of(3, world.entries("step_promoted", run_id)), "promotions are logged")
    assert Counter(entry["stepId"] for entry in said) == dict.fromkeys(STEPS, 1), (
        "who promoted a step says so, and nobody else"
    )


def _all_of(number: int, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of a log once there are so many: a line may come a moment after the answer."""
    return entries if len(entries) >= number else []


def assert_rest(world: World, run_id: str) -> None:
    """Assert that events of all that ever happened to the run make nobody write any more."""
    world.drain()
    commits, changes = world.sandbox.firestore.calls["Commit"], len(world.changes)
    delivered = world.sandbox.eventarc.counts["delivered"]
    for change in list(world.changes):
        if change.name.endswith(f"/{run_id}"):
            world.sandbox.eventarc.publish(change)
    world.drain()
    time.sleep(QUIET_SECONDS)
    assert world.sandbox.eventarc.counts["delivered"] > delivered
    assert (world.sandbox.firestore.calls["Commit"], len(world.changes)) == (commits, changes)


def test_a_flow_written_as_all_pending_runs_to_its_end_and_then_nobody_writes_any_more(world: World) -> None:
    run_id = write_sample(world)
    give_candles(world, run_id)
    world.await_run(run_id, "SUCCEEDED", "FAILED")
    world.drain()
    assert_run_went_well(world, run_id)
    assert_rest(world, run_id)
    assert [one["status"] for one in world.entries("flow_run_status_changed", run_id)] == ["RUNNING", "SUCCEEDED"]


def test_two_of_each_service_and_events_that_come_twice_and_in_any_order_lead_to_the_same(crowd: World) -> None:
    eventarc = Eventarc(PROJECT, seed=11, chances=Chances(duplicate=1.0, reorder=0.5), retries=QUICK, parallel=12)
    with crowd.delivered_by(eventarc):
        run_ids = [write_sample(crowd) for _ in range(2)]
        for run_id in run_ids:
            give_candles(crowd, run_id)
        for run_id in run_ids:
            crowd.await_run(run_id, "SUCCEEDED", "FAILED")
        assert eventarc.drain()
    assert eventarc.counts["duplicated"] == eventarc.counts["published"]
    for run_id in run_ids:
        assert_run_went_well(crowd, run_id)
    finished = Counter(one["status"] for one in crowd.entries("cloud_event_finished"))
    assert finished["retry"] == finished["failed"] == 0, "contention is not answered with 5xx"


def test_a_flow_whose_chart_step_fails_fails_and_says_which(world: World) -> None:
    world.sandbox.chart_img.faults.add(Fault(status=400), times=None)
    run_id = write_sample(world)
    give_candles(world, run_id)
    run = world.await_run(run_id, "SUCCEEDED", "FAILED")
    assert run["status"] == "FAILED"
    assert run["error"]["code"] == "DEPENDENCY_UNSATISFIABLE"
    assert run["steps"]["charts:4h"]["status"] == "FAILED"
    assert run["steps"]["charts:1d"]["status"] == "PENDING"
    world.drain()
    assert_rest(world, run_id)


def test_a_flow_that_a_person_cancels_promotes_nothing_more(world: World) -> None:
    run_id = write_sample(world)
    world.await_status(run_id, CANDLES, "READY")
    world.document(run_id).update({"status": "CANCELLED"})
    give_candles(world, run_id)
    world.drain()
    run = world.run(run_id)
    assert run["status"] == "CANCELLED"
    assert [run["steps"][one]["status"] for one in STEPS] == ["SUCCEEDED", "PENDING", "PENDING"]
    assert_rest(world, run_id)


def test_a_flow_that_can_never_run_is_told_at_once(world: World) -> None:
    steps = {
        "a": a_plain_step("PENDING", ["b"]),
        "b": a_plain_step("PENDING", ["a"]),
        "c": a_plain_step("PENDING"),
    }
    run_id = world.put(a_flow_run(steps, runId=f"cycle-{uuid.uuid4().hex[:6]}", status="PENDING"))
    run = world.await_run(run_id, "FAILED")
    assert (run["error"]["code"], run["error"]["details"]["steps"]) == ("FLOW_RUN_INVALID", ["a", "b"])
    assert {step["status"] for step in run["steps"].values()} == {"PENDING"}
    assert world.await_entry("flow_run_status_changed", run_id)["severity"] == "ERROR"


# Dead workers, and zombies.


def test_a_killed_workers_step_comes_back_and_only_the_missing_charts_are_called_for(crowd: World) -> None:
    calls, ledger = count(), crowd.sandbox.chart_img.ledger
    asked = len(ledger.asked()) + 5
    crowd.sandbox.chart_img.faults.add(SLOW, times=None, matching=lambda _: next(calls) >= 3)
    run_id = crowd.write(charts=FIVE)
    wait_until(lambda: len(crowd.entries("png_written", run_id)) == 3, "three charts are stored")
    wait_until(lambda: len(ledger.asked()) == asked, "the other two are under way")
    (holder,) = [one for one in crowd.of(WORKER) if one.entries("claim_attempt", run_id, claimed=True)]
    holder.kill()
    crowd.unsubscribe()
    stored = {name for name in crowd.objects(run_id) if name.endswith(".png")}
    assert len(stored) == 3
    crowd.sandbox.chart_img.faults.clear()

    assert returned(reap(crowd)[1]) == [], "its lease still holds"
    assert crowd.step(run_id)["status"] == "RUNNING"
    end_lease(crowd, run_id)
    crowd.subscribe()
    status, answer = reap(crowd)
    assert (status, returned(answer)) == (200, [run_id])

    step = crowd.await_end(run_id)
    assert (step["status"], step["outputs"]["execution"]["claim"]["attempt"]) == ("SUCCEEDED", 2)
    assert len(set(claims(crowd, run_id))) == 2
    assert len(ledger.asked()) == asked + 2
    pictures = {item["png_gcs_uri"].split("/", 3)[3] for item in crowd.manifest(run_id)["items"]}
    assert len(pictures) == 5
    assert pictures > stored
    assert crowd.await_run(run_id, "SUCCEEDED")["progress"]["stepCounts"]["succeeded"] == 1


def test_a_zombie_that_wakes_up_after_its_step_was_done_by_another_changes_nothing(crowd: World) -> None:
    zombie, other = crowd.of(WORKER)
    crowd.sandbox.chart_img.faults.add(Fault(delay_seconds=1), times=2)
    crowd.unsubscribe()
    run_id = crowd.write(charts=TWO)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(send, zombie, run_id)
        wait_until(lambda: zombie.entries("chart_api_call_started", run_id), "a chart is called for")
        zombie.pause()
        try:
            end_lease(crowd, run_id)
            assert returned(reap(crowd)[1]) == [run_id]
            crowd.sandbox.chart_img.faults.clear()
            assert send(other, run_id)[0] == 200
            assert send(crowd.of(ORCHESTRATOR)[0], run_id)[0] == 200
            before, pictures = crowd.document(run_id).get(), crowd.objects(run_id)
        finally:
            zombie.resume()
        assert answer.result(PATIENCE_SECONDS)[0] == 200, "there is nothing to ask again for"
    crowd.subscribe()
    after = crowd.document(run_id).get()
    assert (after.to_dict(), after.update_time) == (before.to_dict(), before.update_time)
    assert crowd.objects(run_id).items() >= {one: png for one, png in pictures.items() if ".png" in one}.items()
    assert (after.get("status"), len(claims(crowd, run_id))) == ("SUCCEEDED", 2)
    assert crowd.await_entry("finalize_lost", run_id)["reason"] == "already_final"


# The scheduler's call.


def running(run_id: str, attempt: int = 1, lease_until: str | None = PAST, **changes: Any) -> dict[str, Any]:
    """Return a run with a RUNNING step, whose lease is over unless said."""
    step = a_plain_step("RUNNING", outputs=a_claim(attempt, lease_until))
    return a_flow_run({STEP_ID: step}, **{"runId": run_id, **changes})


def write_all(world: World, runs: Sequence[Mapping[str, Any]]) -> None:
    batch = world.database.batch()
    for run in runs:
        batch.set(world.document(run["runId"]), dict(run))
    batch.commit()
    world.runs.extend(run["runId"] for run in runs)


def statuses(world: World) -> dict[str, tuple[str, str]]:
    """Return of each run its status, and that of its step."""
    runs = {one.id: one.to_dict() or {} for one in world.database.collection("flow_runs").stream()}
    return {run_id: (run["status"], run["steps"][STEP_ID]["status"]) for run_id, run in runs.items()}


def test_all_runs_that_have_not_ended_are_seen_page_by_page_and_no_others(reaping: World) -> None:
    abandoned = [f"run-{number:03}" for number in range(2 * PAGE_SIZE + 20)]
    ended = {f"run-{number:03}-{one}": one for number, one in enumerate(("FAILED", "SUCCEEDED", "CANCELLED"))}
    write_all(reaping, [running(one, status="PENDING" if one == abandoned[0] else "RUNNING") for one in abandoned])
    write_all(reaping, [running(one, status=status) for one, status in ended.items()])
    reaping.sandbox.firestore.tally.clear()
    status, answer = reap(reaping)
    assert status == 200
    assert (answer["seen"], answer["isComplete"], answer["failed"]) == (len(abandoned), True, [])
    assert sorted(returned(answer)) == abandoned
    tally = reaping.sandbox.firestore.tally
    assert (tally.calls["RunQuery"], tally.documents_read["RunQuery"]) == (3 + 1, len(abandoned))
    assert tally.calls["Commit"] == len(abandoned)
    assert statuses(reaping) == {
        **dict.fromkeys(abandoned, ("RUNNING", "READY")),
        **{one: (status, "RUNNING") for one, status in ended.items()},
    }
    claim = reaping.step(abandoned[0])["outputs"]["execution"]["claim"]
    assert (claim["token"], claim["attempt"]) == ("theirs", 1), "only a claim counts an attempt"
    assert reaping.await_entry("reap_finished", advancedCount=len(abandoned))["severity"] == "INFO"

    status, answer = reap(reaping)
    assert (status, answer["seen"], answer["advanced"]) == (200, len(abandoned), [])
    assert tally.calls["Commit"] == len(abandoned), "nothing is left to change"


def test_a_step_that_was_abandoned_too_often_is_given_up(reaping: World) -> None:
    write_all(reaping, [running("second", 2), running("third", 3), running("held", 3, FUTURE)])
    status, answer = reap(reaping)
    assert (status, answer["seen"], returned(answer)) == (200, 3, ["second"])
    assert statuses(reaping) == {
        "second": ("RUNNING", "READY"),
        "third": ("FAILED", "FAILED"),
        "held": ("RUNNING", "RUNNING"),
    }
    run = reaping.run("third")
    assert run["steps"][STEP_ID]["error"]["code"] == "STEP_ABANDONED"
    assert "attempt 3 of 3" in run["steps"][STEP_ID]["error"]["message"]
    assert (run["error"]["code"], run["error"]["details"]["steps"]) == ("STEP_FAILED", [STEP_ID])
    assert run["finishedAt"] == run["steps"][STEP_ID]["finishedAt"]
    assert reaping.await_entry("step_abandoned", "third")["severity"] == "ERROR"
    assert reaping.await_entry("step_returned", "second")["severity"] == "WARNING"


def test_a_step_without_a_lease_is_left_alone_unless_one_is_to_be_assumed(reaping: World) -> None:
    write_all(reaping, [running("older-worker", lease_until=None), running("held", lease_until=FUTURE)])
    assert returned(reap(reaping)[1]) == []
    assert returned(reap(reaping, assumeLease="1000000000")[1]) == []
    status, answer = reap(reaping, assumeLease="0")
    assert (status, returned(answer)) == (200, ["older-worker"])
    assert statuses(reaping) == {"older-worker": ("RUNNING", "READY"), "held": ("RUNNING", "RUNNING")}


def test_a_lease_that_was_taken_away_counts_as_none(reaping: World) -> None:
    write_all(reaping, [running("one", lease_until=FUTURE)])
    reaping.change_step("one", STEP_ID, outputs__execution__claim__leaseUntil=DELETE_FIELD)
    assert returned(reap(reaping)[1]) == []
    assert returned(reap(reaping, assumeLease="0")[1]) == ["one"]


@pytest.mark.parametrize("wrong", ["", "-1", "1.5", "soon", "\N{SUPERSCRIPT TWO}", "9" * 30, "9" * 3_900])
def test_a_lease_to_assume_that_is_no_number_of_seconds_is_refused(reaping: World, wrong: str) -> None:
    write_all(reaping, [running("one", lease_until=None)])
    status, answer = reap(reaping, assumeLease=wrong)
    assert (status, set(answer)) == (400, {"error"})
    assert "assumeLease" in answer["error"]
    assert statuses(reaping) == {"one": ("RUNNING", "RUNNING")}


def test_a_run_that_makes_no_sense_is_failed_and_does_not_stop_the_others(reaping: World) -> None:
    write_all(reaping, [running("wrong-id", runId="wrong-id"), running("zz-good")])
    reaping.document("wrong-id").update({"runId": "another"})
    status, answer = reap(reaping)
    assert (status, answer["isComplete"], len(answer["advanced"])) == (200, True, 2)
    assert statuses(reaping) == {"wrong-id": ("FAILED", "RUNNING"), "zz-good": ("RUNNING", "READY")}


def test_while_the_database_refuses_the_call_fails_and_later_succeeds(reaping: World) -> None:
    write_all(reaping, [running("one")])
    reaping.sandbox.firestore.faults.add("*", code=DENIED, times=ALWAYS)
    status, answer = reap(reaping)
    assert (status, answer["isComplete"], answer["failed"]) == (503, False, ["flow_runs"])
    assert reaping.await_entry("reap_finished", severity="ERROR")["failed"] == ["flow_runs"]
    reaping.sandbox.firestore.faults.clear()
    assert reap(reaping)[0] == 200
    assert statuses(reaping) == {"one": ("RUNNING", "READY")}


def test_one_run_that_cannot_be_written_does_not_stop_the_others(reaping: World) -> None:
    run_ids = [f"run-{number}" for number in range(5)]
    write_all(reaping, [running(one) for one in run_ids])
    reaping.sandbox.firestore.faults.add("Commit", code=DENIED, times=ALWAYS, matching=_writes_run("run-2"))
    status, answer = reap(reaping)
    assert (status, answer["failed"], len(answer["advanced"])) == (503, ["flow_runs/run-2"], 4)
    reaping.sandbox.firestore.faults.clear()
    assert returned(reap(reaping)[1]) == ["run-2"]


@pytest.mark.parametrize("method", ["RunQuery", "Commit"])
def test_what_fails_for_a_moment_is_tried_again(reaping: World, method: str) -> None:
    write_all(reaping, [running("one")])
    reaping.sandbox.firestore.faults.add(method, code=grpc.StatusCode.UNAVAILABLE, times=2)
    assert reap(reaping)[0] == 200
    assert statuses(reaping) == {"one": ("RUNNING", "READY")}


def returned(answer: Mapping[str, Any]) -> list[str]:
    """Return the runs whose step is READY again by this call."""
    return [
        one["runId"]
        for one in answer["advanced"]
        for change in one["changes"]
        if (change["before"], change["after"]) == ("RUNNING", "READY")
    ]


def _writes_run(run_id: str) -> Any:
    return lambda request: any(write.update.name.endswith(f"/{run_id}") for write in request.writes)


# Events.


def orchestrator(world: World) -> Service:
    return world.of(ORCHESTRATOR)[0]


@pytest.mark.parametrize("body", [b"", b"\xff\xff not protobuf", protobuf_payload("flow_runs/x", a_run("x"))])
def test_an_event_of_a_run_that_is_gone_is_settled(world: World, body: bytes) -> None:
    status, event_id = send(orchestrator(world), "gone", body)
    assert status == 200
    assert world.await_entry("cloud_event_noop", eventId=event_id)["reason"] == "flow_run_missing"


def test_the_deletion_of_a_run_is_settled(world: World) -> None:
    run_id = write_sample(world)
    world.await_status(run_id, CANDLES, "READY")
    world.drain()
    world.document(run_id).delete()
    assert world.await_entry("cloud_event_noop", run_id, reason="flow_run_missing")["service"] == "advance-flow"
    world.runs.remove(run_id)


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("documents/chart_templates/one", "other_collection"),
        ("documents/flow_runs/one/charts/two", "bad_subject"),
        ("documents/flow_runs/.hidden", "bad_subject"),
        (None, "no_subject"),
    ],
)
def test_an_event_that_makes_no_sense_is_ignored(world: World, subject: str | None, reason: str) -> None:
    world.sandbox.firestore.tally.clear()
    status, event_id = send(orchestrator(world), "x", subject=subject)
    assert status == 200
    assert world.await_entry("cloud_event_ignored", eventId=event_id)["reason"] == reason
    assert not world.sandbox.firestore.calls


def test_what_the_payload_says_is_not_believed(world: World) -> None:
    world.unsubscribe()
    run_id = write_sample(world)
    done = {**SAMPLE, "runId": run_id, "status": "SUCCEEDED"}
    status, event_id = send(orchestrator(world), run_id, protobuf_payload(f"flow_runs/{run_id}", done))
    world.subscribe()
    assert status == 200
    assert world.await_entry("cloud_event_finished", eventId=event_id)["status"] == "ok"
    run = world.run(run_id)
    assert (run["status"], run["steps"][CANDLES]["status"]) == ("RUNNING", "READY")


@pytest.mark.parametrize("method", ["*", "Commit"])
def test_while_the_database_refuses_events_are_asked_for_again(world: World, method: str) -> None:
    world.unsubscribe()
    run_id = write_sample(world)
    world.sandbox.firestore.faults.add(method, code=DENIED, times=ALWAYS)
    status, event_id = send(orchestrator(world), run_id)
    world.sandbox.firestore.faults.clear()
    assert status == 503
    assert world.await_entry("cloud_event_finished", eventId=event_id)["status"] == "retry"
    assert world.run(run_id) == {**SAMPLE, "runId": run_id}
    assert send(orchestrator(world), run_id)[0] == 200
    world.subscribe()
    assert world.step(run_id, CANDLES)["status"] == "READY"


def test_events_refused_with_503_are_delivered_again_until_the_run_moves(world: World) -> None:
    world.sandbox.firestore.faults.add("BatchGetDocuments", code=DENIED, times=2, matching=_is_in_transaction)
    run_id = write_sample(world)
    world.await_status(run_id, CANDLES, "READY")
    world.drain()
    world.await_entry("cloud_event_finished", run_id, status="ok")
    assert len(world.entries("cloud_event_finished", run_id, status="retry")) == 2
    assert len(world.entries("step_promoted", run_id)) == 1


def _is_in_transaction(request: Any) -> bool:
    return bool(request.transaction)


# Configuration.


NEEDED = {"GOOGLE_CLOUD_PROJECT": "sandbox"}
BAD = {
    "GOOGLE_CLOUD_PROJECT": "Not A Project",
    "FIRESTORE_DATABASE": "No_Database",
    "FIRESTORE_CONCURRENCY": "optimism",
    "FLOW_RUNS_COLLECTION": "flow/runs",
    "STEP_MAX_ATTEMPTS": "now-and-then",
    "INVOCATION_TIMEOUT_SECONDS": "forever",
    "LOG_LEVEL": "CHATTY",
}
OF_CHARTS = {"CHARTS_BUCKET": "no bucket", "CHART_IMG_ACCOUNTS_JSON": CANARY, "CHARTS_API_MODE": "surreal"}


@pytest.mark.parametrize("target", [ORCHESTRATOR, REAPER])
@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        pytest.param({**BAD, **OF_CHARTS}, set(BAD), id="everything"),
        pytest.param({}, {"GOOGLE_CLOUD_PROJECT"}, id="nothing given"),
    ],
)
def test_a_bad_configuration_names_every_variable_no_value_and_does_not_serve(
    target: str, variables: dict[str, str], wrong: set[str]
) -> None:
    service = Service(variables, target=target).launch()
    try:
        assert service.join() not in {0, None}
    finally:
        service.stop()
    (entry,) = service.entries()
    assert (entry["event"], entry["severity"], entry["service"]) == ("config_error", "ERROR", "advance-flow")
    assert {problem.partition(":")[0] for problem in entry["problems"]} == wrong
    said = "".join([*service.stdout, *service.stderr])
    assert not [name for name, value in variables.items() if value in said]
    assert all(line.startswith("{") for line in service.stderr), "nothing but the event is said"


@pytest.mark.parametrize(
    ("target", "variables"),
    [
        (ORCHESTRATOR, {**NEEDED, **OF_CHARTS}),
        (REAPER, {**NEEDED, **OF_CHARTS}),
        (
            WORKER,
            {
                **NEEDED,
                "CHARTS_BUCKET": "gs://charts",
                "CHART_IMG_ACCOUNTS_JSON": json.dumps([{"id": "acc1", "apiKey": CANARY}]),
                "STEP_MAX_ATTEMPTS": "now-and-then",
            },
        ),
    ],
)
def test_what_only_others_need_is_not_looked_at(target: str, variables: dict[str, str]) -> None:
    service = Service(variables, target=target)
    try:
        service.start()
        assert not service.entries()
    finally:
        service.stop()
