"""What an event costs that asks for nothing, as its document grows to a thousand steps; and how much of it is decoding."""

from __future__ import annotations

from benchmarks.events import ATTRIBUTES, payload
from benchmarks.measuring import Spread, cpu_seconds, spread
from benchmarks.noop_events import quiet_worker, seconds_an_event
from benchmarks.tables import Table, show
from interpreters.firestore_events import read_event
from interpreters.sandbox.firestore import FirestoreServer
from service import ChartWorker

SIZES = (50, 100, 200, 500, 1_000)
HALF = 0.5
LINEAR = 1.15
"""How much a step of the largest document may cost, over one of the smallest."""
ROUNDS, STEPS_A_ROUND = 9, 20_000


def _decoding(body: bytes, rounds: int, events: int) -> Spread:
    def read_all() -> None:
        for _ in range(events):
            read_event(ATTRIBUTES["subject"], body, "flow_runs", ChartWorker.statuses)

    read_all()
    return spread([cpu_seconds(read_all) / events for _ in range(rounds)])


def measure(quick: bool) -> list[Table]:
    """Measure in process."""
    sizes, rounds = (SIZES[:1], 1) if quick else (SIZES, ROUNDS)
    rows, first = [], 0.0
    with FirestoreServer() as firestore, quiet_worker(ChartWorker, firestore.address) as worker:
        for size in sizes:
            body, events = payload(size), 1 if quick else STEPS_A_ROUND // size
            whole, decoding = seconds_an_event(worker, body, rounds, events), _decoding(body, rounds, events)
            outside = max(0.0, 1 - decoding.least / whole.least)
            a_step = whole.least / size
            first = first or a_step
            is_reached = outside <= HALF and a_step / first <= LINEAR
            rows.append(
                (
                    f"{size:,}",
                    f"{len(body) / 1024:,.0f}",
                    whole.text(0, 1e6),
                    f"{a_step * 1e6:.2f}",
                    f"{a_step / first:.2f}",
                    f"{outside:.0%}",
                    "yes" if is_reached else "no",
                )
            )
    return [
        Table(
            title="An event that asks for nothing, as its document grows",
            reach="linear, and at most half of it spent outside decoding",
            columns=(
                "steps",
                "KiB",
                "µs of a core an event",
                "µs a step, at best",
                f"over {SIZES[0]} steps",
                "outside decoding",
                "reached",
            ),
            rows=rows,
        )
    ]


if __name__ == "__main__":
    show(measure)
