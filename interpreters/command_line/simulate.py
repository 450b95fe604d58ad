"""`tda simulate`: many simulated runs in which things go wrong, and what that broke.

Owns its flags and help. Must not know what they lead to.
"""

from __future__ import annotations

from typing import Any

import click


@click.command("simulate", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many runs. Default: 10,000; with --sabotage as many as should be enough.",
)
@click.option("--from", "first", metavar="SEED", type=click.IntRange(min=0), help="The first seed. Default: 0.")
@click.option("--faults", metavar="NAME,…", help="What may go wrong. Default: everything.")
@click.option(
    "--steps",
    "shape",
    type=click.Choice(["charts", "report", "flow"]),
    help="What runs: a chart step, a report step, or a flow of three. Default: the seed chooses.",
)
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="Processes. Default: one a core.")
@click.option(
    "--exhaustive", is_flag=True, help="In place of seeds: every fault of one step, and every two of them."
)
@click.option("--only", metavar="POINT:FAULT,…", help="One run, with just these faults or `none`, and its story.")
@click.option("--sabotage", metavar="NAME", help="Break something on purpose, to see it noticed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--list",
    "listed",
    type=click.Choice(["faults", "promises", "sabotages"]),
    help="Print what there is, and end.",
)
def simulate(listed: str | None, **flags: Any) -> None:
    """Run workers, orchestrator, stores, providers, clock and event bus in one thread, and let things go wrong.

    A seed chooses what a run begins with, when everything happens, and what goes wrong: processes die, commits lose
    their answers, calls come too late, events come twice or not at all. After every effect it is checked that no
    promise is broken: quota, claims, artifacts, secrets. The same seed gives the same run.

    \b
    Try it:
      tda simulate                                     ten thousand runs
      tda simulate --exhaustive --steps charts         every fault of a chart step, and every two
      tda simulate --faults crash-before,crash-after   only crashes
      tda simulate --sabotage no-fencing               a bug, the faults that show it, and its story
      tda simulate --from 7 --only none                the story of a run in which nothing goes wrong

    A broken promise is shown with the fewest faults that break it, the story of that run, and the command that
    repeats it. A point is a process and a number, like charts-1:3: the third effect, or so, of the first chart worker.

    Exit codes: 0 every promise was kept, 1 one was broken, 2 the call is wrong, 130 it was stopped.
    """
    # Other commands need not wait for its imports.
    from interpreters.command_line.simulation_run import list_all, simulate_runs  # noqa: PLC0415

    if listed is not None:
        list_all(listed)
    else:
        simulate_runs(**flags)
