"""All benchmarks, one after the other, each in a process of its own: `python -m benchmarks [--quick] [--into FILE]`.

Owns their order, and the file of a day's results. Must not know what is measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import QUESTIONS
from benchmarks.tables import QUICK

HEAD = """\
# Results

Made by `make bench` on {day}, in {seconds:.0f} s: {system}, Python {python}, {cores} cores, load {before:.1f} before and {after:.1f} after.
Where the load is not near zero others were at work on the machine: then ratios, and times of a core, say more than times on the clock.

Numbers are the median of repeated runs, with the middle half of them in brackets. "Of a core" is the time that a core was at work, whatever
else the machine did. What was slow, and what it was before, is in [README.md](README.md).
"""


def main() -> None:
    """Run them, show what they say, and write it into the file if there is one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(QUICK, action="store_true", help="the smallest sizes: to see that everything works")
    parser.add_argument("--into", type=Path, help="also write the results into this file")
    options = parser.parse_args()
    before, started, said = os.getloadavg()[0], time.monotonic(), []
    for name in QUESTIONS:
        command = ["python", "-m", f"benchmarks.{name}", *[QUICK] * options.quick]
        run = subprocess.run([sys.executable, *command[1:]], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            said.append(f"`{' '.join(command)}` failed; its error is on the terminal.\n")
            continue
        said.append(f"{run.stdout.rstrip()}\n\n`{' '.join(command)}`\n")
        print(f"{said[-1]}\n", flush=True)
    head = HEAD.format(
        day=datetime.now(UTC).date(),
        seconds=time.monotonic() - started,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        cores=os.cpu_count(),
        before=before,
        after=os.getloadavg()[0],
    )
    if options.into is not None:
        options.into.write_text("\n".join([head, *said]), "utf-8")


if __name__ == "__main__":
    main()
