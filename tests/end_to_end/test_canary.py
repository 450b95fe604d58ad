from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.builders import CANARY, RUN_ID, STEP_ID, a_flow_run, a_png, a_step, an_input
from tests.end_to_end.console import Call, Ended, call_all, exported_step, manifest, run_local, write_json
from tests.end_to_end.pacing_server import Answer, Asked, Reply, a_picture, serving

SLASHED = "canary/key+4f1b/9c7e2d=="
"""A key with characters that some servers write differently in JSON."""
KEYS = (CANARY, f"{CANARY}-second", SLASHED)
TEMPLATE_ID = "ctpl_price_psar_adi_v1"


def said(asked: Asked) -> bytes:
    """Return an error that says everything it was sent, as careless servers do."""
    headers = "; ".join(f"{name}: {value}" for name, value in asked.headers.items())
    return json.dumps({"message": f"rejected {asked.key} of {headers}", "headers": dict(asked.headers)}).encode()


def refusing(status: int) -> Answer:
    return lambda asked: Reply(status, said(asked))


def escaped(asked: Asked) -> Reply:
    return Reply(400, said(asked).replace(b"/", b"\\/"))


def spelled_out(asked: Asked) -> Reply:
    message = "".join(f"\\u{ord(character):04x}" for character in f"rejected {asked.key}")
    return Reply(422, f'{{"message": "{message}"}}'.encode())


ANSWERS: dict[str, Answer] = {
    "400": refusing(400),
    "401": refusing(401),
    "403": refusing(403),
    "429": refusing(429),
    "500": refusing(500),
    "400 with escaped slashes": escaped,
    "422 with every character escaped": spelled_out,
    "404 in capitals": lambda asked: Reply(404, said(asked).upper(), "text/plain"),
    "302 with the key in the address": lambda asked: Reply(
        302, said(asked), headers={"Location": f"http://127.0.0.1:1/?key={asked.key}"}
    ),
    "200 with HTML": lambda asked: Reply(200, b"<html>" + said(asked), "text/html"),
    "200 with the key in the picture": lambda asked: Reply(200, a_png(padding=asked.key.encode()), "image/png"),
    "200 with a picture": a_picture,
}


def the_call(folder: Path, url: str, mode: str, first: str) -> Call:
    """Return a run whose keys, this one first, come from a file outside the folder that is searched."""
    ordered = sorted(KEYS, key=lambda key: key != first)
    rows = [{"id": f"acc{i}", "apiKey": key, "requestsPerSecond": 50} for i, key in enumerate(ordered)]
    config = write_json(folder.parent / f"accounts of {folder.name}.json", rows)
    journal = ("--journal", "journal.jsonl", *(["--journal-texts"] if mode == "record" else []))
    flags = ("--charts-api-mode", mode, "--fixtures-dir", ".", "--accounts-config-path", config, *journal)
    document = a_flow_run({STEP_ID: a_step(inputs=an_input([TEMPLATE_ID]))})
    variables = {"CHART_IMG_BASE_URL": url, "CHARTS_MAX_ATTEMPTS": "1", "LOG_LEVEL": "DEBUG"}
    return run_local(folder, document, flags=flags, variables=variables)


RUNS = [
    *((name, "real", CANARY) for name in ANSWERS),
    *(
        (name, "record", CANARY)
        for name in ANSWERS
        if name not in {"401", "403", "404 in capitals", "200 with HTML"}
    ),
    ("400 with escaped slashes", "real", SLASHED),
    ("400 with escaped slashes", "record", SLASHED),
    ("422 with every character escaped", "record", SLASHED),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canary")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Ended]:
    """Run every answer in both modes; each answer is served at an address of its own."""
    with ExitStack() as stack:
        urls = {name: stack.enter_context(serving(answer)).url for name, answer in ANSWERS.items()}
        labels = {_label(*run): run for run in RUNS}
        return call_all(
            {
                label: the_call(folder / label, urls[name], mode, first)
                for label, (name, mode, first) in labels.items()
            }
        )


def _label(name: str, mode: str, first: str) -> str:
    return f"{mode}, {name}, {KEYS.index(first)}"


def leaks(ended: Ended, folder: Path | None = None) -> list[str]:
    """Return every place in which a key can be read."""
    places = {"stdout": ended.stdout.encode(), "stderr": ended.stderr.encode()}
    for path in folder.rglob("*") if folder else ():
        places[f"name of {path}"] = path.name.encode()
        if path.is_file():
            places[str(path)] = path.read_bytes()
    keys = [spelling.lower() for key in KEYS for spelling in _spellings(key)]
    return [place for place, data in places.items() if any(key in data.lower() for key in keys)]


def _spellings(key: str) -> tuple[bytes, ...]:
    """Return the key as it is, as JSON with escaped slashes has it, and as a fixture's name would have it."""
    slashes = (key.replace("/", "\\/"), key.replace("/", "\\\\/"))
    return tuple(one.encode() for one in (key, *slashes, re.sub(r"[^A-Za-z0-9]+", "_", key).strip("_")))


@pytest.mark.parametrize(("name", "mode", "first"), RUNS, ids=lambda one: one.replace(CANARY, "plain"))
def test_a_key_that_the_server_says_back_appears_nowhere(
    runs: Mapping[str, Ended], folder: Path, name: str, mode: str, first: str
) -> None:
    label = _label(name, mode, first)
    assert runs[label].events("chart_api_call_finished")
    assert '"CallChartApi"' in (folder / label / "journal.jsonl").read_text("utf-8")
    assert leaks(runs[label], folder / label) == []


@pytest.mark.parametrize("mode", ["real", "record"])
def test_what_the_server_says_is_still_told_without_the_key(
    runs: Mapping[str, Ended], folder: Path, mode: str
) -> None:
    state = folder / _label("400", mode, CANARY) / "state"
    (failure,) = manifest(state)["failures"]
    assert failure["error"]["code"] == "CHART_API_FAILED"
    assert "HTTP 400: rejected ***" in failure["error"]["message"]
    assert "rejected ***" in exported_step(state, RUN_ID)["error"]["message"]


def test_record_mode_keeps_what_was_answered_without_the_key(runs: Mapping[str, Ended], folder: Path) -> None:
    refused = folder / _label("400", "record", CANARY) / "chart-img" / "advanced-chart-v2"
    (kept,) = refused.iterdir()
    assert kept.name.startswith(f"BINANCE_BTCUSDT__4h__{TEMPLATE_ID}__400_")
    content = json.loads(kept.read_text("utf-8"))
    assert (content["status"], content["body"]["headers"]["x-api-key"]) == (400, "***")
    drawn = folder / _label("200 with a picture", "record", CANARY) / "chart-img" / "advanced-chart-v2"
    assert [path.name for path in drawn.iterdir()] == [f"BINANCE_BTCUSDT__4h__{TEMPLATE_ID}.png"]


def test_a_picture_that_carries_a_key_is_not_kept(runs: Mapping[str, Ended], folder: Path) -> None:
    for mode in ("real", "record"):
        here = folder / _label("200 with the key in the picture", mode, CANARY)
        assert not list(here.rglob("*.png"))


# Accounts that cannot be used.

BAD_ACCOUNTS = {
    "not JSON": f'[{{"id": "acc1", "apiKey": "{CANARY}"',
    "a string": json.dumps(CANARY),
    "an object": json.dumps({"id": "acc1", "apiKey": CANARY}),
    "a list of keys": json.dumps([CANARY]),
    "key a list": json.dumps([{"id": "acc1", "apiKey": [CANARY]}]),
    "key with a space": json.dumps([{"id": "acc1", "apiKey": f"{CANARY} {CANARY}"}]),
    "id missing": json.dumps([{"apiKey": CANARY}]),
    "id of the wrong form": json.dumps([{"id": f"{CANARY}/{CANARY}", "apiKey": CANARY}]),
    "numbers that are keys": json.dumps(
        [{"id": "acc1", "apiKey": CANARY, "dailyLimit": CANARY, "requestsPerSecond": CANARY}]
    ),
    "the same key twice": json.dumps([{"id": one, "apiKey": CANARY} for one in ("acc1", "acc2")]),
    "the same id twice": json.dumps([{"id": "acc1", "apiKey": f"{CANARY}{i}"} for i in range(2)]),
    "another variable": "[]",
}


@pytest.fixture(scope="module")
def bad_runs(folder: Path) -> dict[str, Ended]:
    calls = {}
    for name, text in BAD_ACCOUNTS.items():
        variables = {"CHARTS_API_MODE": "real", "CHART_IMG_ACCOUNTS_JSON": text}
        if name == "another variable":
            variables = dict.fromkeys(("CHART_IMG_BASE_URL", "CHARTS_BUCKET", "LOG_LEVEL"), CANARY.upper())
        calls[name] = run_local(folder / f"bad, {name}", a_flow_run(), variables=variables)
    file = folder / "bad accounts.json"
    file.write_text(BAD_ACCOUNTS["key with a space"])
    calls["in a file"] = run_local(folder / "file", a_flow_run(), flags=("--accounts-config-path", file))
    return call_all(calls)


@pytest.mark.parametrize("name", [*BAD_ACCOUNTS, "in a file"])
def test_accounts_that_cannot_be_used_exit_2_and_show_no_key(bad_runs: Mapping[str, Ended], name: str) -> None:
    ended = bad_runs[name]
    assert "Traceback" not in ended.stderr
    assert (ended.code, ended.stdout) == (2, "")
    where = {"another variable": "CHART_IMG_BASE_URL", "in a file": "--accounts-config-path"}
    assert all(where.get(name, "CHART_IMG_ACCOUNTS_JSON") in ended.stderr for _ in ended.problems())
    assert leaks(ended) == []
