"""How long a step takes in the cloud with one account of ten calls a second, over what that rate allows.

The limit is that of `cloud_step`, later by as much as the last call has to wait for its turn.
"""

from __future__ import annotations

from benchmarks.cloud_step import DELAYS, REACH, limit, step_times
from benchmarks.servers import serving
from benchmarks.steps import configuration
from benchmarks.tables import Table, held, show

RATE = 10
CHARTS = (1, 5, 10, 20)
ROUNDS = 3


def measure(quick: bool) -> list[Table]:
    """Measure with preconditions."""
    sizes, rounds = ((1,), 1) if quick else (CHARTS, ROUNDS)
    rows = []
    with serving(DELAYS) as servers:
        chosen = configuration(servers.at.chart, accounts=1, rate=RATE)
        for size, took in step_times(servers.at, "precondition", chosen, sizes, rounds).items():
            least = limit("precondition") + (size - 1) / RATE
            ratio = took.median / least
            rows.append(
                (str(size), f"{least * 1e3:,.0f}", took.text(scale=1e3), f"{ratio:.3f}", held(ratio, REACH))
            )
    return [
        Table(
            title=f"One step in the cloud, one account of {RATE} calls a second",
            reach=f"at most {REACH} times what the rate allows",
            columns=("charts", "limit, ms", "took, ms", "ratio of the median", "reached"),
            rows=rows,
            notes=(
                "Slots are a tenth further apart than the rate asks for, so that no jitter makes two of them meet.",
            ),
        )
    ]


if __name__ == "__main__":
    show(measure)
