"""`tda sandbox`: the cloud in one process, for as long as the command runs.

Owns its flags and what it prints. Must not know how the servers work.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interpreters import shipped
from interpreters.command_line.homes import open_cloud
from interpreters.command_line.inputs import say, stop
from interpreters.templates import TemplateFolder

if TYPE_CHECKING:
    from interpreters.sandbox.whole import Sandbox


@click.command("sandbox")
@click.option("--firestore-port", default=8686, show_default=True, help="0 takes any free port.")
@click.option("--storage-port", default=8687, show_default=True)
@click.option("--chart-img-port", default=8688, show_default=True)
@click.option(
    "--service",
    "services",
    multiple=True,
    default=["http://127.0.0.1:8690", "http://127.0.0.1:8691"],
    show_default=True,
    help="URL to deliver changes of flow_runs to; may be given several times.",
)
@click.option("--duplicates", default=0.1, show_default=True, help="Part of the events that is delivered twice.")
@click.option("--reordered", default=0.1, show_default=True, help="Part of the events that is held back a little.")
@click.option("--seed", default=0, show_default=True, help="Chooses which events.")
@click.option(
    "--env-file", type=click.Path(path_type=Path), help="Write the export lines here as well, to be sourced."
)
def sandbox(
    firestore_port: int,
    storage_port: int,
    chart_img_port: int,
    services: tuple[str, ...],
    duplicates: float,
    reordered: float,
    seed: int,
    env_file: Path | None,
) -> None:
    """Run the cloud in one process: Firestore, Cloud Storage, Chart-IMG, and events like Eventarc's.

    Google's client libraries talk to it unmodified, once the printed variables are set. Everything is in memory and
    gone when the command ends. The shipped chart templates are there from the start.

    \b
    In one terminal:
      tda sandbox --env-file sandbox.env
    In another:
      source sandbox.env
      functions-framework --source service.py --target worker_chart_export --signature-type cloudevent --port 8690
    In a third:
      source sandbox.env
      functions-framework --source service.py --target advance_flow --signature-type cloudevent --port 8691
    In a fourth:
      source sandbox.env
      python -c 'from google.cloud import firestore; import json, sys; run = json.load(open(sys.argv[1])); \\
          firestore.Client().document("flow_runs", run["runId"]).set(run)' fixtures/flow-runs/five_charts.json
    """
    from interpreters.sandbox.eventarc import Chances  # noqa: PLC0415 - the libraries are slow to import
    from interpreters.sandbox.whole import Ports, Sandbox  # noqa: PLC0415

    try:
        whole = Sandbox(
            services=services,
            ports=Ports(firestore=firestore_port, storage=storage_port, chart_img=chart_img_port),
            chances=Chances(duplicate=duplicates, reorder=reordered),
            seed=seed,
        )
        with whole:
            _serve(whole, env_file)
    except (OSError, RuntimeError, ImportError) as error:
        stop("sandbox", f"cannot start: {error}")


def _serve(whole: Sandbox, env_file: Path | None) -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    environment = whole.environment()
    lines = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    os.environ.update(environment)
    folder = TemplateFolder(shipped.TEMPLATES)
    templates, _ = folder.load(folder.ids())
    open_cloud().store_templates(templates, dry_run=False)
    say(lines)
    if env_file is not None:
        env_file.write_text(lines + "\n", "utf-8")
    say(
        f"# {len(templates)} chart templates are stored; events go to {', '.join(whole.services)}; stop with Ctrl-C"
    )
    ended.wait()
