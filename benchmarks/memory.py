"""The most memory that one step of many large charts takes, beside what the calls under way hold.

Each step runs in a fresh process. What Python holds is traced: how much its peak grows with the size of a picture is how many pictures a call
holds. What the system gives (resident memory) is more, for allocators keep some.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from dataclasses import asdict
from pathlib import Path

from benchmarks.measuring import MIB, memory_bytes
from benchmarks.servers import Addresses, Delays, serving
from benchmarks.steps import (
    a_flow_run,
    a_log,
    cloud,
    configuration,
    embedded_export,
    run,
    state_directory,
    templates,
)
from benchmarks.tables import Table, show

CHARTS, PARALLEL = 50, 8
SMALL, LARGE = 1, 5
"""Sizes of pictures, in MiB."""
STORES = ("embedded", "cloud")
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "262144"}
"""As in the Dockerfile."""
_CHILD = "--child"


def step_in_this_process(store: str, charts: int, at: Addresses, folder: Path) -> tuple[int, int, int]:
    """Run a step; return what memory the process had before, its peak, and the peak of what is traced, if anything is."""
    chosen = configuration(at.chart, parallel=PARALLEL)
    flow_run = a_flow_run(0, charts)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        if store == "cloud":
            project = cloud(at, "precondition")
            project.store_templates(templates(charts), dry_run=False)
            project.place(flow_run)
            export = project.chart_export(chosen)
        else:
            state, where = state_directory(folder, charts)
            state.place(flow_run)
            export = embedded_export(state, where, chosen)
        before = memory_bytes("self", "VmRSS")
        run(export, flow_run, a_log(nowhere))
    return before, memory_bytes("self", "VmHWM"), tracemalloc.get_traced_memory()[1]


def peak(store: str, charts: int, picture_bytes: int, *, traced: bool) -> tuple[int, int, int]:
    """Run a step in a fresh process; return what `step_in_this_process` returns."""
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        serving(Delays(picture_bytes=picture_bytes)) as servers,
    ):
        words = [_CHILD, store, str(charts), json.dumps(asdict(servers.at)), folder]
        command = [sys.executable, *["-X", "tracemalloc"] * traced, "-m", "benchmarks.memory", *words]
        said = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, **ALLOCATOR}, check=True).stdout
    before, most, held = json.loads(said)
    return before, most, held


def measure(quick: bool) -> list[Table]:
    """Measure both stores."""
    charts, stores = (2, STORES[:1]) if quick else (CHARTS, STORES)
    rows = []
    for store in stores:
        before, most, _ = peak(store, charts, LARGE * MIB, traced=False)
        small, large = (peak(store, charts, size * MIB, traced=True)[2] for size in (SMALL, LARGE))
        held = (large - small) / (LARGE - SMALL) / PARALLEL / MIB
        sizes = (before, most, most - before - PARALLEL * LARGE * MIB, small, large)
        is_reached = "yes" if round(held, 1) <= 1 else "no"
        rows.append((store, *(f"{one / MIB:.0f}" for one in sizes), f"{held:.2f}", is_reached))
    return [
        Table(
            title=f"Peak memory of one step of {charts} charts, {PARALLEL} calls side by side",
            reach="no more than parallel calls x image size + a constant",
            columns=(
                "store",
                "MiB before",
                f"peak, {LARGE} MiB a chart",
                "above calls x size",
                f"held at {SMALL} MiB a chart",
                f"at {LARGE} MiB",
                "images a call",
                "reached",
            ),
            rows=rows,
        )
    ]


def _child(words: list[str]) -> None:
    store, charts, at, folder = words
    print(json.dumps(step_in_this_process(store, int(charts), Addresses(**json.loads(at)), Path(folder))))


if __name__ == "__main__":
    if _CHILD in sys.argv:
        _child(sys.argv[2:])
    else:
        show(measure)
