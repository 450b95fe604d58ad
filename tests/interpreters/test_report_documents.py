"""The report worker in the cloud: its commits are guarded by update_time, whatever else is set (4.21, 4.22)."""

from __future__ import annotations

from typing import Any

import pytest

from core.rules import decide
from effects import ClaimLost, ClaimStep, FinalizeLost, FinalizeStep, StepClaimed, StepFinalized
from interpreters.clock import SystemClock
from interpreters.cloud import Cloud
from tests.builders import NOW, RUN_PATH
from tests.emulators import FIRESTORE_HOST, a_project, cloud_settings, firestore_on, our_firestore
from tests.report_world import a_report_flow_run, a_report_step, report_configuration, report_steps, uri_of

STEP_ID = "report:1M.final"
CLAIM = ClaimStep(flow_run=RUN_PATH, step_id=STEP_ID, step_type="LLM_REPORT", token="mine", lease_seconds=600)
FINALIZE = FinalizeStep(
    flow_run=RUN_PATH,
    step_id=STEP_ID,
    token="mine",
    status="SUCCEEDED",
    outputs={"gcs_uri": uri_of("report.json")},
    execution={"timing": {"durationMs": 1}, "llm": {"finishReason": None}},
    error=None,
)


def test_4_22_claim_and_finalize_are_read_gate_and_update_with_a_precondition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = a_project()
    with our_firestore() as server, firestore_on(server.address, project) as client:
        monkeypatch.setenv(FIRESTORE_HOST, server.address)
        cloud = Cloud(cloud_settings(project, "transaction"), SystemClock())
        store = cloud.report_writer(report_configuration()).interpreter.documents
        client.document(RUN_PATH).set(a_report_flow_run({**report_steps(), STEP_ID: a_report_step()}, extra=1))
        server.tally.clear()

        def transact(effect: Any) -> Any:
            return store.transact((RUN_PATH,), lambda found: decide(found, effect, NOW))

        assert isinstance(transact(CLAIM), StepClaimed)
        assert transact(CLAIM) == transact(CLAIM)
        lost = ClaimStep(flow_run=RUN_PATH, step_id=STEP_ID, step_type="LLM_REPORT", token="x", lease_seconds=1)
        assert transact(lost) == ClaimLost(reason="not_ready", at=NOW)
        for _ in range(2):
            assert transact(FINALIZE) == StepFinalized(status="SUCCEEDED", at=NOW)
        late = FinalizeStep(
            flow_run=RUN_PATH, step_id=STEP_ID, token=None, status="FAILED", outputs={}, error=None
        )
        assert transact(late) == FinalizeLost(reason="already_final", at=NOW)
        assert server.calls["BeginTransaction"] == 0
        assert server.calls["Commit"] == 2
        step = client.document(RUN_PATH).get().to_dict()["steps"][STEP_ID]
        assert (step["status"], step["outputs"]["execution"]["claim"]["token"]) == ("SUCCEEDED", "mine")
