from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from core.charts.manifest import manifest_problems
from tests.builders import RUN_ID
from tests.end_to_end.console import artifacts, call, environment, exported_step, manifest

CHECKOUT = Path(__file__).parents[2]
SOURCES = ("core", "effects", "fixtures", "interpreters", "cli.py", "pyproject.toml", "README.md")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, so that the checkout gets no build folder."""
    sources, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        path = CHECKOUT / name
        if path.is_dir():
            shutil.copytree(path, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, sources / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(sources)]
    done = subprocess.run(build, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel in it, and our dependencies but not our checkout beside it."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    options = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--quiet")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)]
    done = subprocess.run(install, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # A folder named in a .pth file is searched, but the .pth files in it are not read: no editable install.
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_the_wheel_holds_everything_that_is_shipped(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = [
        path.relative_to(CHECKOUT).as_posix()
        for pattern in ("fixtures/**/*.json", "fixtures/**/*.png", "core/**/*.json", "**/*.py")
        for folder in ("core", "effects", "fixtures", "interpreters")
        for path in CHECKOUT.glob(pattern)
        if path.relative_to(CHECKOUT).parts[0] == folder
    ]
    assert len(shipped) > 100
    assert sorted(set(shipped) - set(names)) == []
    assert not [name for name in names if name.startswith(("tests", "build", "."))]


def test_the_installed_wheel_is_what_is_imported(installed: Path, tmp_path: Path) -> None:
    code = "import cli, core, effects, fixtures, interpreters as i; print(*(m.__file__ for m in (cli, core, effects, fixtures, i)), sep='\\n')"
    ended = call(tmp_path, "-c", code, command=(str(installed / "bin" / "python"),))
    files = ended.stdout.splitlines()
    assert (ended.code, len(files)) == (0, 5)
    assert [file for file in files if not file.startswith(str(installed))] == []


def test_the_shipped_sample_runs_from_the_wheel_in_an_empty_directory(installed: Path, tmp_path: Path) -> None:
    (sample,) = (installed / "lib").glob("python*/site-packages/fixtures/flow-runs/five_charts.json")
    script = (str(installed / "bin" / "worker-chart-export"),)
    ended = call(tmp_path, "run-local", "--flow-run-path", sample, "--output-summary", "json", command=script)
    assert (ended.code, ended.summary()["itemsCount"]) == (0, 5)
    state = tmp_path / ".tda"
    assert manifest_problems(manifest(state)) == ()
    assert len(artifacts(state, "*.png")) == 5
    assert exported_step(state, RUN_ID)["status"] == "SUCCEEDED"
    assert [path.name for path in tmp_path.iterdir()] == [".tda"]


def test_tda_of_the_wheel_validates_its_templates(installed: Path, tmp_path: Path) -> None:
    ended = call(tmp_path, "charts", "templates", "validate", command=(str(installed / "bin" / "tda"),))
    assert (ended.code, ended.stdout) == (0, "5 of 5 templates are valid\n")


def test_the_wheel_asks_for_what_it_imports_and_no_test_tools(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
    lines = archive.read(name).decode().splitlines()
    needed = [line for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line]
    stated = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"][
        "dependencies"
    ]
    assert len(needed) == len(stated)
    assert json.dumps(needed).count("pytest") == 0
