from __future__ import annotations

from core.hopes import Hopes
from effects import FindFlowRuns, FlowRunsFound
from tests.builders import NOW


def test_a_page_of_flow_runs_has_those_of_the_status_after_the_last_one() -> None:
    documents = {
        "flow_runs/a": {"status": "RUNNING"},
        "flow_runs/b": {"status": "FAILED"},
        "flow_runs/c": {"status": "RUNNING"},
        "flow_runs/d": {"status": "RUNNING"},
        "others/e": {"status": "RUNNING"},
    }
    effect = FindFlowRuns(collection="flow_runs", status="RUNNING", after="flow_runs/a", limit=1)
    expected = FlowRunsFound(flow_runs={"flow_runs/c": documents["flow_runs/c"]}, at=NOW)
    assert Hopes(dict(documents)).outcome(effect, NOW) == expected
