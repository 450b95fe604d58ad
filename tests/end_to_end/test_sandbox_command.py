"""`tda sandbox` as a process: what it prints, what talks to it, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from interpreters.shipped import FLOW_RUNS, PROMPTS, SCHEMAS, TEMPLATES
from tests.emulators import FIRESTORE_HOST, STORAGE_HOST, firestore_on, storage_on
from tests.end_to_end.console import TDA_CHARTS, Call, Ended, call, call_all, finish, run_local, start
from tests.end_to_end.zygote import Process

pytestmark = pytest.mark.timeout(60)

TDA = TDA_CHARTS[:1]
PORTS = ("--firestore-port", "--storage-port", "--chart-img-port", "--gemini-port")
ANY_PORTS = tuple(word for flag in PORTS for word in (flag, "0"))
FIVE_CHARTS: dict[str, Any] = json.loads((FLOW_RUNS / "five_charts.json").read_text("utf-8"))


class Running:
    """A sandbox under way, and what it has printed until it was ready."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self.lines: list[str] = []
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("#"):
                break

    @property
    def variables(self) -> dict[str, str]:
        return exports("\n".join(self.lines))


def exports(text: str) -> dict[str, str]:
    """Return the variables that a shell would have after these lines."""
    words = [shlex.split(line) for line in text.splitlines() if line.startswith("export ")]
    return dict(word.split("=", 1) for _, word in words)


def without_grpc(ended: Ended) -> Ended:
    """Leave out what the C library of gRPC writes to stderr on its own: I1116 04:21:19.659075 …"""
    lines = [line for line in ended.stderr.splitlines() if not re.match(r"[IWE]\d{4} \d\d:", line)]
    return replace(ended, stderr="\n".join(lines))


@contextmanager
def sandbox(folder: Path, *flags: str, real: bool = False) -> Iterator[Running]:
    process = start(Call(folder, ("sandbox", *ANY_PORTS, *flags), TDA, real=real))
    try:
        yield Running(process)
    finally:
        process.terminate()
        finish(process)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("sandbox")
    services = ("--service", "http://127.0.0.1:9", "--service", "http://127.0.0.1:10")
    with sandbox(folder, "--env-file", "sandbox.env", *services) as one:
        one.lines.append((folder / "sandbox.env").read_text("utf-8"))
        yield one


def test_the_sandbox_prints_the_variables_that_point_at_it(running: Running) -> None:
    *_, words, written = running.lines
    assert set(running.variables) == {
        "FIRESTORE_EMULATOR_HOST",
        "STORAGE_EMULATOR_HOST",
        "GOOGLE_CLOUD_PROJECT",
        "CHARTS_BUCKET",
        "CHARTS_API_MODE",
        "CHART_IMG_BASE_URL",
        "CHART_IMG_ACCOUNTS_JSON",
        "ARTIFACTS_BUCKET",
        "ARTIFACTS_PREFIX",
        "LLM_API_MODE",
        "GEMINI_BASE_URL",
        "GEMINI_API_KEY",
        "ENV",
    }
    services = "http://127.0.0.1:9, http://127.0.0.1:10"
    stored = "5 chart templates, 1 prompts and 1 schemas are stored"
    assert words == f"# {stored}; events go to {services}; stop with Ctrl-C"
    assert exports(written) == running.variables


def test_the_env_file_can_be_sourced_by_a_shell(running: Running, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(running.lines[-1], "utf-8")
    said = subprocess.run(
        ["sh", "-c", '. ./env; printf %s "$CHART_IMG_ACCOUNTS_JSON"'],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        text=True,
    )
    assert said.stdout == running.variables["CHART_IMG_ACCOUNTS_JSON"]
    assert {one["id"] for one in json.loads(said.stdout)} == {"acc1", "acc2"}


def test_the_official_firestore_client_talks_to_it(running: Running) -> None:
    with firestore_on(running.variables[FIRESTORE_HOST], "sandbox") as client:
        document = client.document("things/a")
        document.set({"n": 1})
        assert document.get().to_dict() == {"n": 1}
        stored = {
            name: {one.id for one in client.collection(name).stream()}
            for name in ("chart_templates", "llm_prompts", "llm_schemas")
        }
    shipped = {"chart_templates": TEMPLATES, "llm_prompts": PROMPTS, "llm_schemas": SCHEMAS}
    assert stored == {name: {path.stem for path in folder.glob("*.json")} for name, folder in shipped.items()}


def test_the_official_storage_client_talks_to_it(running: Running) -> None:
    with storage_on(running.variables[STORAGE_HOST]) as client:
        blob = client.bucket(running.variables["CHARTS_BUCKET"].removeprefix("gs://")).blob("a/b c.txt")
        blob.upload_from_string(b"bytes", if_generation_match=0)
        assert blob.download_as_bytes() == b"bytes"


def test_chart_img_answers(running: Running) -> None:
    assert requests.get(running.variables["CHART_IMG_BASE_URL"], timeout=5).json() == {"status": "ok"}


def test_a_worker_with_the_printed_variables_draws_five_charts(running: Running, tmp_path: Path) -> None:
    one = run_local(tmp_path, FIVE_CHARTS, flags=("--store", "firestore"), variables=running.variables)
    (ended,) = call_all({"": one}).values()
    assert (ended.code, ended.summary()["itemsCount"], ended.summary()["chartsApiMode"]) == (0, 5, "real")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_signal_ends_it_well(tmp_path: Path, number: signal.Signals) -> None:
    with sandbox(tmp_path, real=True) as one:
        services = ", ".join(f"http://127.0.0.1:{port}" for port in (8690, 8691, 8692))
        assert f"events go to {services};" in one.lines[-1], "charts, orchestrator, reports"
        os.kill(one.process.pid, number)
        ended = without_grpc(finish(one.process))
        assert (ended.code, ended.stdout, ended.stderr) == (0, "", "")
        port = int(one.variables[FIRESTORE_HOST].rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    folder = tmp_path_factory.mktemp("wrong")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        calls = {flag: Call(folder, ("sandbox", *ANY_PORTS, flag, port), TDA) for flag in PORTS}
        elsewhere = ("sandbox", *ANY_PORTS, "--env-file", "no/such/folder/env")
        alone = ("sandbox", *ANY_PORTS, "--given", "a=b", "--logs-dir", "logs")
        ended = call_all(
            {**calls, "env file": Call(folder, elsewhere, TDA), "flags alone": Call(folder, alone, TDA)}
        )
    return {**{name: without_grpc(one) for name, one in ended.items()}, "port": Ended(0, port, "")}


@pytest.mark.parametrize("flag", PORTS)
def test_a_port_that_is_taken_is_said(wrong: Mapping[str, Ended], flag: str) -> None:
    assert (wrong[flag].code, wrong[flag].stdout) == (2, "")
    (problem,) = wrong[flag].problems()
    assert problem.startswith("sandbox: cannot start: ")
    assert wrong["port"].stdout in problem or "in use" in problem


def test_an_env_file_that_cannot_be_written_is_said(wrong: Mapping[str, Ended]) -> None:
    assert wrong["env file"].code == 2
    (problem,) = wrong["env file"].problems()
    assert "no/such/folder/env" in problem


def test_flags_that_mean_nothing_without_others_are_said(wrong: Mapping[str, Ended]) -> None:
    assert wrong["flags alone"].code == 2
    assert wrong["flags alone"].problems() == [
        "--given: needs --flow-run-path",
        "--logs-dir: needs --with-workers",
    ]


def test_its_help_says_how_to_use_it(tmp_path: Path) -> None:
    said = call(tmp_path, "sandbox", "--help", command=TDA).stdout
    for text in (*PORTS, "8686", "8687", "8688", "8689", "8692", "--env-file", "source sandbox.env"):
        assert text in said
    for target, port in (("worker_chart_export", 8690), ("advance_flow", 8691)):
        assert f"--target {target} --signature-type cloudevent --port {port}" in said
        assert f"http://127.0.0.1:{port}" in said
