"""Twenty thousand seeds, in chunks that xdist spreads; `make simulate` runs a hundred thousand."""

from __future__ import annotations

import json

import pytest

from interpreters.simulation.faults import Fault
from interpreters.simulation.runs import by_seeds

SEEDS = 20_000
CHUNKS = 20
SIZE = SEEDS // CHUNKS


@pytest.mark.parametrize("chunk", range(CHUNKS), ids=lambda chunk: f"from-{chunk * SIZE}")
def test_every_promise_is_kept(chunk: int, tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> None:
    tally = by_seeds(range(chunk * SIZE, (chunk + 1) * SIZE))
    assert tally.failures == []
    assert tally.runs == SIZE
    assert set(tally.statuses) == {"SUCCEEDED", "FAILED"}

    # Whoever is the last of all processes looks at what all chunks have exercised.
    shared = tmp_path_factory.getbasetemp().parent / f"exercised-{testrun_uid}"
    shared.mkdir(exist_ok=True)
    (shared / f"{chunk}.json.new").write_text(json.dumps(tally.faults))
    (shared / f"{chunk}.json.new").rename(shared / f"{chunk}.json")
    written = list(shared.glob("*.json"))
    if len(written) == CHUNKS:
        happened = {name for one in written for name in json.loads(one.read_text())}
        assert {fault.value for fault in Fault} == happened
