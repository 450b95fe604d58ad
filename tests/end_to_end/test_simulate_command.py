from __future__ import annotations

import json
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.console import Call, Ended, call, call_at_once, finish, start
from tests.end_to_end.zygote import SCRIPTS

TDA = (str(SCRIPTS / "tda"),)
TIMES = ("seconds", "cpuSeconds", "runsPerSecond", "runsPerCpuSecond")


def _untimed(ended: Ended) -> dict[str, Any]:
    assert ended.stderr == ""
    return {name: value for name, value in ended.summary().items() if name not in TIMES}


def test_what_comes_of_seeds_does_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    flags = ("simulate", "--seeds", "210", "--json")
    one, three = call_at_once([Call(tmp_path, (*flags, "--jobs", jobs), TDA) for jobs in "13"])
    assert (one.code, three.code) == (0, 0)
    assert _untimed(one) == _untimed(three)
    assert one.summary()["runs"] == 210


def test_the_first_seed_that_fails_is_shown_whoever_ran_it_and_repeated_as_printed(tmp_path: Path) -> None:
    flags = ("simulate", "--seeds", "400", "--json", "--sabotage", "forgets-ready")
    one, three = call_at_once([Call(tmp_path, (*flags, "--jobs", jobs), TDA) for jobs in "13"])
    assert (one.code, three.code) == (1, 1)
    assert _untimed(one) == _untimed(three)
    failure = one.summary()["failure"]
    _, *again = shlex.split(failure["command"])
    repeated = call(tmp_path, *again, "--json", command=TDA)
    assert (repeated.code, json.loads(repeated.stdout)["failure"]) == (1, failure)


def test_a_wrong_call_is_said_as_everywhere(tmp_path: Path) -> None:
    ended = call(tmp_path, "simulate", "--exhaustive", "--steps", "flow", command=TDA)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.problems() == ["--exhaustive: is of one step: --steps charts or report"]


has_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it looks for children in /proc")


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_until(is_so: Any) -> None:
    ends = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.02)


@has_proc
def test_whoever_stops_it_is_told_how_far_it_got(tmp_path: Path) -> None:
    process = start(Call(tmp_path, ("simulate", "--seeds", "1000000", "--jobs", "2"), TDA))
    _wait_until(lambda: len(_children(process.pid)) == 2)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert (ended.code, ended.stderr) == (130, "")
    assert ended.stdout.splitlines()[-1].startswith("stopped after ")
    assert " of 1,000,000 seeds" in ended.stdout
    assert "; go on with --from " in ended.stdout


@has_proc
def test_no_process_stays_behind_when_it_is_killed(tmp_path: Path) -> None:
    process = start(Call(tmp_path, ("simulate", "--seeds", "1000000", "--jobs", "2"), TDA))
    _wait_until(lambda: len(_children(process.pid)) == 2)
    children = _children(process.pid)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    assert finish(process).code == -signal.SIGKILL
    _wait_until(lambda: not any(_is_alive(one) for one in children))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
