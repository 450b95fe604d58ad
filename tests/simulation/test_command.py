from __future__ import annotations

import pytest

from interpreters.simulation.faults import Fault, parse_faults
from interpreters.simulation.invariants import PROMISES
from interpreters.simulation.runs import exhaustive
from interpreters.simulation.sabotages import SABOTAGES
from tests.simulation.command import repeated, simulate, simulated

TIMES = ("seconds", "cpuSeconds", "runsPerSecond", "runsPerCpuSecond")


def test_people_are_told_how_much_was_run_how_fast_and_what_went_wrong() -> None:
    result = simulate("--seeds", "40", "--from", "7")
    assert (result.exit_code, result.stderr) == (0, "")
    size, ended, empty, heading, *rows, _, verdict = result.stdout.splitlines()
    assert size.startswith("40 runs, ")
    assert " with 1 process: " in size
    assert size.endswith(" a second per core")
    assert ended.startswith("ended: ")
    assert (empty, verdict) == ("", "every promise was kept")
    assert heading.split() == ["fault", "times", "what", "it", "is"]
    assert [row.split()[0] for row in rows] == [one.value for one in Fault]
    assert {row[heading.index("what") - 2 :][:2] for row in rows} == {"  "}


def test_machines_are_told_the_same() -> None:
    code, said = simulated("--seeds", "30", "--steps", "report")
    assert (code, said["runs"], said["failure"]) == (0, 30, None)
    assert sum(said["statuses"].values()) == 30
    assert [*said["faults"]] == [one.value for one in Fault]
    assert all(said[one] > 0 for one in TIMES)


def test_only_the_faults_named_happen_and_are_shown() -> None:
    _, said = simulated("--seeds", "60", "--faults", "crash-before, crash-after")
    assert [*said["faults"]] == ["crash-before", "crash-after"]
    assert sum(said["faults"].values()) > 0


def test_all_faults_of_one_step_are_walked_through() -> None:
    code, said = simulated("--exhaustive", "--steps", "charts", "--faults", "crash-before")
    assert code == 0
    assert said["runs"] == exhaustive("charts", allowed=parse_faults(["crash-before"])).runs > 50


def test_a_failure_among_all_faults_is_repeated_by_the_printed_command() -> None:
    code, said = simulated("--exhaustive", "--steps", "charts", "--sabotage", "works-on-after-lease")
    assert code == 1
    command = said["failure"]["command"]
    assert command.startswith(
        "tda simulate --exhaustive --steps charts --sabotage works-on-after-lease --only charts-"
    )
    assert repeated(command)[1]["failure"] == said["failure"]


def test_one_run_is_told_with_just_the_faults_named() -> None:
    result = simulate("--from", "34", "--steps", "charts", "--only", "bus:2:event-lost")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "What happened:"
    assert [line for line in lines if "!" in line] == [line for line in lines if "! event-lost: an event" in line]
    assert lines[-1] == "  every promise was kept"


def test_a_run_without_faults_is_told() -> None:
    code, said = simulated("--from", "7", "--only", "none")
    assert (code, said["failure"], said["neverHappened"]) == (0, None, "")
    assert not any("!" in line for line in said["story"])


def test_faults_that_never_happened_are_named() -> None:
    result = simulate("--only", "charts-9:1:crash-after")
    assert result.exit_code == 0
    assert result.stdout.endswith("never happened: charts-9:1:crash-after\n")


@pytest.mark.parametrize(
    ("what", "names"),
    [("faults", [one.value for one in Fault]), ("promises", [*PROMISES]), ("sabotages", [*SABOTAGES])],
)
def test_what_there_is_is_listed(what: str, names: list[str]) -> None:
    result = simulate("--list", what)
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == names


def test_a_sabotage_that_goes_unnoticed_is_said() -> None:
    result = simulate("--sabotage", "no-fencing", "--seeds", "1")
    assert result.exit_code == 0
    assert result.stdout.endswith("every promise was kept: the sabotage no-fencing went unnoticed\n")


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "fault": (("--faults", "nap"), "--faults: there is no fault nap; there are: crash-before, "),
    "no fault": (("--faults", ""), "--faults: there is no fault ; there are: "),
    "sabotage": (("--sabotage", "nap"), "--sabotage: there is no nap; there are: no-fencing, "),
    "schedule": (
        ("--only", "charts-1:crash-after"),
        "--only: 'charts-1:crash-after' is not like charts-1:3:crash-after",
    ),
    "fault of a schedule": (("--only", "charts-1:3:nap"), "--only: there is no fault nap; there are: "),
    "seeds of one": (("--only", "none", "--seeds", "2"), "--seeds: can only be 1 with --only"),
    "faults of one": (("--only", "none", "--faults", "429"), "--faults: means nothing to --only"),
    "seeds of all faults": (("--exhaustive", "--from", "0"), "--seeds, --from: mean nothing to --exhaustive"),
    "flow": (("--exhaustive", "--steps", "flow"), "--exhaustive: is of one step: --steps charts or report"),
    "one of which": (
        ("--exhaustive", "--only", "none"),
        "--exhaustive: with --only needs --steps charts or report",
    ),
    "steps": (("--steps", "nap"), "'charts', 'report', 'flow'"),
    "number": (("--seeds", "0"), "0 is not in the range x>=1"),
}


@pytest.mark.parametrize(("flags", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_call_says_what_would_be_right(flags: tuple[str, ...], message: str) -> None:
    result = simulate(*flags)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_everything_that_is_wrong_is_said_at_once() -> None:
    result = simulate("--only", "nap", "--sabotage", "nap")
    assert [one in result.stderr for one in ("--only: 'nap'", "--sabotage: there is no nap")] == [True, True]
