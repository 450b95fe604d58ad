"""How many simulated runs a second of a core makes: what `tda simulate` can look through in a night."""

from __future__ import annotations

import time
from itertools import count

from benchmarks.measuring import spread
from benchmarks.tables import Table, show
from interpreters.simulation.runs import by_seeds

ROUNDS, RUNS = 5, 100


def measure(quick: bool) -> list[Table]:
    """Run seeds, the same number in each round."""
    rounds, runs = (1, 2) if quick else (ROUNDS, RUNS)
    rates, effects, starts = [], 0, count(0, runs)
    for _ in range(rounds):
        started, first = time.process_time(), next(starts)
        tally = by_seeds(range(first, first + runs))
        rates.append(tally.runs / (time.process_time() - started))
        effects += tally.effects
    return [
        Table(
            title="Simulated runs",
            reach="printed",
            columns=("runs", "runs a second of a core", "effects a run"),
            rows=[(f"{rounds * runs:,}", spread(rates).text(0), f"{effects / rounds / runs:.0f}")],
        )
    ]


if __name__ == "__main__":
    show(measure)
