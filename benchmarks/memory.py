"""The most memory that one step of many large charts takes, beside what the calls under way hold.

Each step runs in a fresh process; what counts is how much its peak grows with the size of a picture: the constant is what remains.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
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
_CHILD = "--child"


def step_in_this_process(store: str, charts: int, at: Addresses, folder: Path) -> tuple[int, int]:
    """Run a step; return what memory the process had after its imports, and its peak."""
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
    return before, memory_bytes("self", "VmHWM")


def peak(store: str, charts: int, picture_bytes: int) -> tuple[int, int]:
    """Run a step in a fresh process; return its memory before, and its peak."""
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        serving(Delays(picture_bytes=picture_bytes)) as servers,
    ):
        words = [_CHILD, store, str(charts), json.dumps(asdict(servers.at)), folder]
        command = [sys.executable, "-m", "benchmarks.memory", *words]
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603 - ourselves
    before, most = json.loads(said)
    return before, most


def measure(quick: bool) -> list[Table]:  # noqa: FBT001 - every benchmark's signature
    """Measure both stores."""
    charts, stores = (2, STORES[:1]) if quick else (CHARTS, STORES)
    rows = []
    for store in stores:
        (_, small), (before, large) = peak(store, charts, SMALL * MIB), peak(store, charts, LARGE * MIB)
        held = (large - small) / (LARGE - SMALL) / PARALLEL / MIB
        constant = large / MIB - PARALLEL * LARGE
        rows.append(
            (
                store,
                f"{before / MIB:.0f}",
                f"{small / MIB:.0f}",
                f"{large / MIB:.0f}",
                f"{PARALLEL * LARGE}",
                f"{constant:.0f}",
                f"{held:.2f}",
                "yes" if round(held, 1) <= 1 else "no",
            )
        )
    return [
        Table(
            title=f"Peak memory of one step of {charts} charts, {PARALLEL} calls side by side",
            reach="no more than parallel calls x image size + a constant",
            columns=(
                "store",
                "before, MiB",
                f"peak at {SMALL} MiB a chart",
                f"at {LARGE} MiB",
                "calls x size",
                "constant",
                "images held a call",
                "reached",
            ),  # fmt: skip
            rows=rows,
        )
    ]


def _child(words: list[str]) -> None:
    store, charts, at, folder = words
    print(json.dumps(step_in_this_process(store, int(charts), Addresses(**json.loads(at)), Path(folder))))  # noqa: T201


if __name__ == "__main__":
    if _CHILD in sys.argv:
        _child(sys.argv[2:])
    else:
        show(measure)
