from __future__ import annotations

import pickle

from interpreters.simulation.faults import ALL_FAULTS, parse_faults
from interpreters.simulation.invariants import PROMISES
from interpreters.simulation.parallel import CHUNK, SomeSeeds, cut, working
from interpreters.simulation.runs import Tally, by_seeds
from interpreters.simulation.sabotages import SABOTAGES


def test_what_seeds_come_to_does_not_depend_on_their_order() -> None:
    seeds = range(120, 180)
    backwards = Tally()
    for seed in reversed(seeds):
        backwards.add(by_seeds([seed]))
    assert by_seeds(seeds) == backwards


def test_seeds_are_cut_into_chunks_without_gaps() -> None:
    chunks = cut(range(5, 5 + 2 * CHUNK + 1), ALL_FAULTS, "flow", None)
    assert [one.size for one in chunks] == [CHUNK, CHUNK, 1]
    assert [seed for one in chunks if isinstance(one, SomeSeeds) for seed in one.seeds] == [
        *range(5, 5 + 2 * CHUNK + 1)
    ]


def test_chunks_and_what_they_come_to_travel_between_processes() -> None:
    chunks = cut(range(30), parse_faults(["event-lost"]), "report", "report-lost")
    with working(pickle.loads(pickle.dumps(chunks)), jobs=1) as finished:
        (done,) = finished
    assert pickle.loads(pickle.dumps(done)).tally == done.tally
    assert [one.violation.promise for one in done.tally.failures] == ["artifacts"]


def test_faults_that_are_not_allowed_do_not_happen() -> None:
    assert set(by_seeds(range(100), parse_faults(["crash-after"])).faults) == {"crash-after"}


def test_sabotages_break_every_promise_that_there_is() -> None:
    broken = {one for sabotage in SABOTAGES.values() for one in sabotage.breaks}
    assert broken == set(PROMISES)
