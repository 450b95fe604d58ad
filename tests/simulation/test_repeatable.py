from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = 200
STORIES = f"""
from hashlib import sha256
from interpreters.simulation.faults import ALL_FAULTS, Seeded
from interpreters.simulation.scenarios import choices_of, scenario_of
from interpreters.simulation.story import Story
from interpreters.simulation.world import World

digest = sha256()
for seed in range({SEEDS}):
    story = Story()
    world = World(scenario_of(choices_of(seed)), Seeded(seed, ALL_FAULTS), seed, trace=story.note)
    digest.update(repr((seed, world.run(), world.happened, story.lines, world.documents.documents)).encode())
    digest.update(repr(sorted(world.objects.objects.items())).encode())
print(digest.hexdigest())
"""


def test_the_same_seeds_give_the_same_runs_byte_for_byte_whatever_hashes_are() -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", STORIES],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "1", "random")
    ]
    digests = {one.communicate()[0] for one in started}
    assert [one.returncode for one in started] == [0, 0, 0]
    assert len(digests) == 1
