from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from interpreters.simulation.runs import by_seeds, smallest, story_of
from interpreters.simulation.sabotages import SABOTAGES
from tests.simulation.command import repeated, simulate, simulated

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_is_noticed_in_time_and_the_printed_command_repeats_it(name: str) -> None:
    sabotage = SABOTAGES[name]
    code, said = simulated("--sabotage", name)
    assert code == 1
    assert said["runs"] <= sabotage.within
    failure = said["failure"]
    assert failure["promise"] in sabotage.breaks
    assert repeated(failure["command"])[1]["failure"] == failure


@pytest.mark.parametrize("name", ["no-leases", "steals-claims", "forgets-ready"])
def test_a_failure_is_made_smaller_and_breaks_the_same_promise(name: str) -> None:
    sabotage = SABOTAGES[name]
    (failure,) = by_seeds(range(sabotage.within), sabotage.faults, sabotage.shape, sabotage.cast).failures
    least = smallest(failure, sabotage.cast)
    assert least.violation.promise == failure.violation.promise
    assert least.schedule.items() <= failure.schedule.items()
    assert smallest(least, sabotage.cast) == least
    story = story_of(least, sabotage.cast)
    assert all(any(fault.value in line for line in story) for fault in least.schedule.values())


def test_people_are_shown_what_was_broken_the_faults_the_story_and_how_to_repeat_it() -> None:
    result = simulate("--sabotage", "forgets-ready")
    assert (result.exit_code, result.stderr) == (1, "")
    told = result.stdout[result.stdout.index("BROKEN") :].splitlines()
    assert told[0].startswith("BROKEN, with seed ")
    assert told[2] == "The fewest faults found that break it:"
    assert told[3].split("  ")[1:] == ["bus:2", "event-lost", "an event never comes"]
    assert "! event-lost: an event never comes" in told[6]
    ending = ["  BROKEN ends: two hours later charts is READY", "", "Repeat it:"]
    assert told[-4:-1] == ending
    assert told[-1].endswith(" --steps charts --sabotage forgets-ready --only bus:2:event-lost")


def test_a_long_story_is_cut_and_the_printed_command_tells_it_whole() -> None:
    result = simulate("--sabotage", "forgets-ready")
    assert " lines are left out; the command below shows them" in result.stdout
    *_, command = result.stdout.splitlines()
    whole = simulate(*shlex.split(command)[2:])
    assert whole.exit_code == 1
    assert "left out" not in whole.stdout
    assert len(whole.stdout.splitlines()) > 100


def test_the_readme_shows_what_is_printed() -> None:
    (shown,) = re.findall(r"```\n(BROKEN.*?)\n```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    *_, command = shown.splitlines()
    printed = simulate(*shlex.split(command)[2:]).stdout.splitlines()
    assert [line for line in shown.splitlines() if line not in printed and line.strip() != "…"] == []
