"""A child of a zygote is a process like the one that a fresh interpreter makes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.console import FIVE_CHARTS, TDA_CHARTS, WORKER, Call, Ended, call, finish, run_local, start
from tests.end_to_end.zygote import Forked, Process, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="there are zygotes on Linux only")

SANDBOX = ("sandbox", "--firestore-port", "0", "--storage-port", "0", "--chart-img-port", "0")
TDA = TDA_CHARTS[:1]


@pytest.fixture(autouse=True)
def _zygotes_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REAL_STARTS", raising=False)


def until_it_speaks(made: Call) -> Process:
    """Return a process that is sure to be under way."""
    process = start(made)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(WORKER, ("--version",)), (TDA_CHARTS, ("--help",)), (TDA, ("no-such-command",)), (TDA, ())],
    ids=" ".join,
)
def test_it_says_what_a_fresh_interpreter_says(
    tmp_path: Path, command: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    forked, fresh = (call(tmp_path, *arguments, command=command, real=real) for real in (False, True))
    assert forked == fresh


def test_it_has_a_pid_a_folder_an_environment_and_streams_of_its_own(tmp_path: Path) -> None:
    variables = {"ENV": "of its own"}
    with until_it_speaks(Call(tmp_path, SANDBOX, TDA, variables)) as process:
        assert isinstance(process, Forked)
        about = Path("/proc", str(process.pid))
        assert process.pid != os.getpid()
        assert (about / "cwd").resolve() == tmp_path.resolve()
        streams = [str((about / "fd" / one).readlink()) for one in ("0", "1", "2")]
        assert streams[0] == os.devnull
        assert len({*streams}) == 3
        process.terminate()
        finish(process)
    ended = call(tmp_path, "run-local", "--flow-run-path", "nowhere.json", variables=variables)
    assert [one["env"] for one in ended.events()] == ["of its own"]
    assert [one["env"] for one in call(tmp_path, "run-local", "--flow-run-path", "nowhere.json").events()] != [
        "of its own"
    ]


@pytest.mark.parametrize("real", [False, True])
def test_a_signal_that_kills_is_its_exit_code(tmp_path: Path, real: bool) -> None:
    process = until_it_speaks(Call(tmp_path, SANDBOX, TDA, real=real))
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    process.kill()


def test_it_keeps_its_pid_until_its_end_was_seen(tmp_path: Path) -> None:
    process = until_it_speaks(Call(tmp_path, SANDBOX, TDA))
    os.kill(process.pid, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    assert finish(process).code == -signal.SIGKILL


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"PYTHONUTF8": "0"}, {"TZ": "Asia/Tokyo"}], ids=str)
def test_what_is_read_before_the_fork_takes_a_fresh_interpreter(tmp_path: Path, variables: dict[str, str]) -> None:
    process = start(Call(tmp_path, ("--version",), variables=variables))
    assert isinstance(process, subprocess.Popen)
    assert finish(process).code == 0


def test_children_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    made = [run_local(tmp_path / str(one), FIVE_CHARTS) for one in range(4)]
    processes = [start(one) for one in made]
    ended: list[Ended] = [finish(one) for one in processes]
    assert [(one.code, one.summary()["itemsCount"]) for one in ended] == [(0, 5)] * 4
    assert len({one.pid for one in processes}) == 4
