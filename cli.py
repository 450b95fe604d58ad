"""The command line: `tda`, and each worker's part of it under its own name.

`worker-chart-export` is `tda charts`, `advance-flow` is `tda flow`, `worker-llm-client` is `tda reports`. Owns which commands there are; each
worker's commands live in `interpreters/command_line`.
"""

from __future__ import annotations

import click

from interpreters.command_line.charts import worker_chart_export
from interpreters.command_line.flow import advance_flow
from interpreters.command_line.inputs import prepare_streams
from interpreters.command_line.replay import replay
from interpreters.command_line.reports import worker_llm_client
from interpreters.command_line.sandbox import sandbox
from interpreters.command_line.simulate import simulate

__all__ = ["advance_flow", "tda", "worker_chart_export", "worker_llm_client"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tda-workers")
def tda() -> None:
    """Workers of a Trading Decisions Assistant.

    A flow_run document has steps; a worker takes a READY step, does the work, stores the artifacts and ends the
    step. Everything runs on this machine with nothing to configure.

    \b
    Try it:
      tda charts plan      --flow-run-path flow_run.json   what would happen
      tda charts run-local --flow-run-path flow_run.json   make it happen
      tda flow   run       --flow-run-path flow_run.json   a whole flow, step after step
      tda replay run.jsonl                                 what today's code makes of a run's --journal
      tda simulate                                         ten thousand runs in which things go wrong
    """
    prepare_streams()


tda.add_command(worker_chart_export, "charts")
tda.add_command(advance_flow, "flow")
tda.add_command(worker_llm_client, "reports")
tda.add_command(sandbox)
tda.add_command(replay)
tda.add_command(simulate)
