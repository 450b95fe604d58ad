"""The lines of a journal, as they are written and as they are read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest

from core.flow.given import GivenInputs
from core.flow.orchestrator import AdvanceInputs
from core.flow.reaper import ReapInputs
from core.journal.blobs import read_blob, show_blob, show_text
from core.journal.comparing import FieldDifference, differences
from core.journal.kinds import ADVANCES, CHARTS, GIVEN_STEPS, REAPINGS, REPORTS
from core.journal.lines import WITHHELD, Pen, as_read
from core.journal.naming import journal_name
from core.journal.reading import read_journal
from core.journal.settings import (
    NO_JOURNAL,
    VARIABLES,
    Bucket,
    Folder,
    JournalSettings,
    OneFile,
    parse_journal_settings,
)
from core.settings import Given
from effects import (
    HOPED_BLOB,
    AdvanceFlow,
    ClaimStep,
    Effect,
    EffectFailed,
    FinalizeStep,
    FindFlowRuns,
    FlowAdvanced,
    FlowRunsFound,
    LeasePolicy,
    LoadPrompt,
    LoadSchema,
    LoadTemplates,
    Outcome,
    PutObject,
    SchemaLoaded,
    blob,
)
from tests.builders import NOW, RUN_PATH, a_flow_run, a_png, some_inputs
from tests.journals import driven, journal_of, replayed, runs_of
from tests.report_world import ReportWorld, a_manifest, some_report_inputs
from tests.world import World

PEN = Pen("r1", texts=False)
HEADER = PEN.header(CHARTS, some_inputs())
BEGUN = PEN.begun(1, LoadTemplates(chart_template_ids=("a",)))


def said(line: str) -> dict[str, Any]:
    return dict(json.loads(line))


# Writing.


def test_the_first_line_says_which_program_and_what_it_was_given() -> None:
    header = said(HEADER)
    inputs = header.pop("inputs")
    assert header == {"run": "r1", "journal": 1, "program": "chart-export", "texts": False}
    assert (inputs["flowRunPath"], inputs["now"], inputs["token"]) == (RUN_PATH, "2025-12-15T10:25:30Z", "token-1")
    assert inputs["flowRun"] == a_flow_run()


@pytest.mark.parametrize(
    ("kind", "inputs"), [(CHARTS, some_inputs(set_aside=frozenset({"b", "a"}))), (REPORTS, some_report_inputs())]
)
def test_inputs_survive_the_journey(kind: Any, inputs: Any) -> None:
    (run,) = runs_of(PEN.header(kind, inputs))
    assert (run.kind, run.inputs, run.is_cut) == (kind, inputs, True)


def test_an_outcome_names_its_effect() -> None:
    assert said(BEGUN) == {
        "run": "r1",
        "begun": 1,
        "effect": {"effect": "LoadTemplates", "chartTemplateIds": ["a"]},
    }
    failed = EffectFailed(effect=LoadTemplates(chart_template_ids=()), error_type="E", message="oh", at=NOW)
    assert {**said(PEN.done(1, failed)), "outcome": None} == {"run": "r1", "done": 1, "outcome": None}
    assert said(PEN.done(1, failed))["outcome"]["message"] == "oh"


def test_what_an_exception_said_of_a_prompt_is_withheld_unless_texts_were_asked_for() -> None:
    failed = EffectFailed(effect=LoadPrompt(prompt_id="p"), error_type="E", message="You are…", at=NOW)
    assert said(PEN.done(1, failed))["outcome"]["message"] == WITHHELD
    assert said(Pen("r1", texts=True).done(1, failed))["outcome"]["message"] == "You are…"


def test_a_schema_is_kept_for_calls_show_it_anyway() -> None:
    line = PEN.done(1, SchemaLoaded(content=blob(b"{}"), at=NOW))
    assert said(line)["outcome"]["content"]["text"] == "{}"


def test_what_json_has_no_form_for_is_written_as_text() -> None:
    document = {"at": NOW, "view": MappingProxyType({"a": (1, 2)}), "bytes": b"x", "half": "\ud800"}
    line = Pen("r1", texts=False).header(CHARTS, some_inputs(flow_run=document))
    written = {"at": "2025-12-15T10:25:30Z", "view": {"a": [1, 2]}, "bytes": "b'x'", "half": "\ud800"}
    assert line.isascii()
    assert said(line)["inputs"]["flowRun"] == written
    assert as_read(written) == written


# Bytes.

MANIFEST = a_manifest()


@pytest.mark.parametrize(
    ("data", "more", "with_texts"),
    [
        (b"You are an analyst.", {}, {"text": "You are an analyst."}),
        (b"\xff\xfe", {}, {}),
        (a_png(), {"picture": "whole"}, {"picture": "whole"}),
        (a_png()[:-1], {"picture": "cut"}, {"picture": "cut"}),
        (MANIFEST, {"text": MANIFEST.decode()}, {"text": MANIFEST.decode()}),
        (b'{"requested"', {}, {"text": '{"requested"'}),
        (b'{"requested": []}', {}, {"text": '{"requested": []}'}),
        (b'{"requested": 1, "signed_url": 2}', {}, {"text": '{"requested": 1, "signed_url": 2}'}),
    ],
)
def test_of_bytes_a_journal_holds_size_and_hash_and_what_a_replay_decides_by(
    data: bytes, more: dict[str, Any], with_texts: dict[str, Any]
) -> None:
    content = blob(data)
    known = {"size": len(data), "sha256": content.sha256}
    assert (show_blob(content), show_text(content)) == ({**known, **more}, {**known, **with_texts})


def test_bytes_that_nobody_has_are_shown_as_such() -> None:
    assert show_text(HOPED_BLOB) == {"size": None, "sha256": None}
    assert read_blob({"size": None, "sha256": None}) == HOPED_BLOB


@pytest.mark.parametrize("data", [a_png(), a_png()[:-1]])
def test_a_picture_is_stood_in_for_by_another_under_its_own_size_and_hash(data: bytes) -> None:
    shown = show_text(blob(data))
    stand_in = read_blob(shown)
    assert stand_in.data not in {None, data}
    assert show_text(stand_in) == shown


@pytest.mark.parametrize("data", [b"", b"text", "äö".encode()])
def test_texts_that_were_kept_come_back(data: bytes) -> None:
    assert read_blob(show_text(blob(data))) == blob(data)
    assert read_blob(show_blob(blob(b""))) == blob(b"")


# Reading.

DONE = PEN.done(1, EffectFailed(effect=LoadSchema(schema_id="s"), error_type="E", message="x", at=NOW))
ENDED = '{"run": "r1", "ended": null}'


@pytest.mark.parametrize(
    ("lines", "where", "what"),
    [
        ([], "line 1", "there is no run in this file"),
        (["", "  "], "line 1", "there is no run in this file"),
        ([HEADER[:40]], "line 1", "there is no run in this file"),
        (["no JSON"], "line 1", "is not JSON: Expecting value"),
        (["[1]"], "line 1", "is a list; must be an object that names its run"),
        (['{"run": 1}'], "line 1", "is an object; must be an object that names its run"),
        ([HEADER.replace('"journal": 1', '"journal": 2')], "line 1", "of version 2; this is version 1"),
        ([HEADER.replace("chart-export", "photos")], "line 1", "is of the program 'photos'; known are chart-export,"),
        ([HEADER.replace('"token"', '"tokens"')], "line 1", "not those of chart-export: required field missing @ $.token"),
        ([HEADER, BEGUN.replace("r1", "r2")], "line 2", "the first line of run r2 is not here"),
        ([HEADER, DONE], "line 2", "is the outcome of effect 1, which has not begun"),
        ([HEADER, BEGUN, DONE.replace("EffectFailed", "Undone")], "line 3", "the outcome is not one that is known"),
        ([HEADER, BEGUN.replace('"begun": 1', '"begun": "a"')], "line 2", "numbers its effect with a string"),
        ([HEADER, '{"run": "r1", "begun": 1}'], "line 2", "has no effect"),
        ([HEADER, '{"run": "r1", "begun": 1, "effect": {}}'], "line 2", "has no effect"),
        ([HEADER, '{"run": "r1"}'], "line 2", "says nothing of begun, done, aborted, ended"),
        ([HEADER, BEGUN[:-1], DONE], "line 3", "comes after line 2 of its run, which is not JSON"),
        ([HEADER, ENDED, BEGUN], "line 3", "comes after line 2, the end of its run"),
        ([HEADER, ENDED, HEADER], "line 3", "comes after line 2, the end of its run"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_journal_is_refused_with_the_line_that_is_wrong(
    lines: list[str], where: str, what: str
) -> None:
    (found,) = read_journal("\n".join(lines)).failure()
    assert found.where == where
    assert what in found.message


def test_a_line_that_was_not_written_to_its_end_ends_its_run_and_no_other() -> None:
    other = HEADER.replace('"r1"', '"r2"')
    first, second = runs_of("\n".join([HEADER, BEGUN, BEGUN[:20], other, '{"ru', '{"run": "r3", "jou']))
    assert (len(first.entries), first.is_cut) == (1, True)
    assert (second.line, second.entries) == (4, ())


def test_runs_side_by_side_are_told_apart() -> None:
    one = journal_of(_ran(World(some_inputs())), CHARTS).splitlines()
    two = [line.replace("token-1", "token-2") for line in one]
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    first, second = runs_of("\n".join(mixed))
    assert [type(entry) for entry in first.entries] == [type(entry) for entry in second.entries]
    assert second.inputs.token == "token-2"


def _ran(world: Any) -> Any:
    world.run()
    return world


# The smaller programs.

LEASES = LeasePolicy(max_attempts=3)


def test_a_pass_of_the_orchestrator_agrees_also_with_moments_that_are_no_text() -> None:
    flow_run = {**a_flow_run(), "createdAt": datetime(2025, 12, 15, tzinfo=UTC)}
    inputs = AdvanceInputs(flow_run_path=RUN_PATH, flow_run=flow_run, leases=LEASES, now=NOW)

    def answer(effect: Effect, at: datetime) -> Outcome:
        assert isinstance(effect, AdvanceFlow)
        return FlowAdvanced(flow_run=effect.flow_run, status="RUNNING", changes=(), at=at)

    for known in (inputs, AdvanceInputs(flow_run_path=RUN_PATH, flow_run=None, leases=LEASES, now=NOW)):
        assert replayed(driven(ADVANCES, known, answer)).found == ()


def test_a_walk_of_the_reaper_agrees() -> None:
    inputs = ReapInputs(collection="flow_runs", leases=LEASES, ends_at=NOW + timedelta(minutes=9))
    waiting = a_flow_run({"a": {"stepType": "X", "status": "PENDING", "dependsOn": []}})

    def answer(effect: Effect, at: datetime) -> Outcome:
        if isinstance(effect, FindFlowRuns):
            return FlowRunsFound(flow_runs={RUN_PATH: waiting}, at=at)
        return FlowAdvanced(flow_run=RUN_PATH, status="RUNNING", changes=(), at=at)

    text = driven(REAPINGS, inputs, answer)
    assert replayed(text).found == ()
    assert said(text.splitlines()[-1])["ended"]["advanced"][0]["flowRun"] == RUN_PATH


GIVEN = GivenInputs(
    flow_run_path=RUN_PATH, step_id="candles:4h", step_type="OHLCV_EXPORT", bucket="b", file_name="c.json",
    content=blob(b"[1, 2]"), token="token-1", now=NOW,
)  # fmt: skip


@pytest.mark.parametrize("texts", [True, False])
def test_a_given_step_agrees_with_or_without_its_file(texts: bool) -> None:
    world = ReportWorld()

    def answer(effect: Effect, at: datetime) -> Outcome:
        if isinstance(effect, ClaimStep | FinalizeStep):
            return EffectFailed(effect=effect, error_type="E", message="x", at=at)
        assert isinstance(effect, PutObject)
        return world.hoped(effect, at)

    text = driven(GIVEN_STEPS, GIVEN, answer, texts=texts)
    assert replayed(text).found == ()
    assert ("[1, 2]" in text) == texts
    assert said(text.splitlines()[-1])["ended"] == {"phase": "ended", "isClaimUnknown": True}


# Names.


@pytest.mark.parametrize(
    ("kind", "inputs", "expected"),
    [
        (
            CHARTS,
            some_inputs(),
            "20251215-102530_BTCUSDT_k3f7a/20251215-102530_chart-export_charts-4h-all_r1.jsonl",
        ),
        (CHARTS, some_inputs(wanted_step="x"), "20251215-102530_BTCUSDT_k3f7a/20251215-102530_chart-export_r1.jsonl"),
        (
            REAPINGS,
            ReapInputs(collection="flow_runs", leases=LEASES, ends_at=NOW),
            "flow_runs/20251215-102530_reap_r1.jsonl",
        ),
        (
            ADVANCES,
            AdvanceInputs(flow_run_path="flow_runs/..", flow_run=None, leases=LEASES, now=NOW),
            "-/20251215-102530_advance-flow_r1.jsonl",
        ),
    ],
)  # fmt: skip
def test_a_journal_is_named_after_its_run_moment_program_and_step(kind: Any, inputs: Any, expected: str) -> None:
    assert journal_name(kind, inputs, "r1", NOW) == expected


# Settings.


def parsed(file: str | None = None, *, texts: bool = False, **variables: str) -> Any:
    given = {name: Given(text, name) for name, text in variables.items()}
    return parse_journal_settings(given, file, texts=texts)


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("gs://bucket/a/b", Bucket("bucket", "a/b")),
        ("gs://bucket", Bucket("bucket", "")),
        ("gs://bucket/a/", Bucket("bucket", "a")),
        ("/var/journals", Folder("/var/journals")),
        ("journals", Folder("journals")),
        ("file:///var/my%20journals", Folder("/var/my journals")),
        ("", None),
    ],
)
def test_journals_go_to_a_bucket_or_a_folder(uri: str, place: object) -> None:
    assert parsed(JOURNAL_URI=uri).unwrap() == JournalSettings(place=place)  # type: ignore[arg-type]


@pytest.mark.parametrize("uri", ["gs://", "gs://UPPER/x", "s3://bucket", "file://host/x", "file://", "a\0b"])
def test_another_place_is_refused(uri: str) -> None:
    (found,) = parsed(JOURNAL_URI=uri).failure()
    assert str(found) == "JOURNAL_URI: must be gs://BUCKET/PREFIX, a folder, or file:///FOLDER"


def test_a_flag_beats_the_variable() -> None:
    assert VARIABLES == ("JOURNAL_URI", "JOURNAL_TEXTS")
    assert parsed("x.jsonl", JOURNAL_URI="y").unwrap() == JournalSettings(place=OneFile("x.jsonl"))
    assert parsed(JOURNAL_URI="y", JOURNAL_TEXTS="true").unwrap().texts
    assert parsed("x", texts=True).unwrap().texts
    assert parsed().unwrap() == NO_JOURNAL


def test_what_is_wrong_is_said_all_at_once() -> None:
    assert [one.where for one in parsed(JOURNAL_URI="s3://x", JOURNAL_TEXTS="yes").failure()] == [*VARIABLES]
    (found,) = parsed(texts=True).failure()
    assert str(found) == "--journal-texts: needs --journal FILE, or JOURNAL_URI"


# Comparing.

KNOWN, OTHER = {"size": 1, "sha256": "a"}, {"size": 1, "sha256": "b"}


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, [("a.b[1]", "2", "3")]),
        ([1], [1, {"x": 2}], [("[1]", "nothing", '{"x": 2}')]),
        ([1, 2], [1], [("[1]", "2", "nothing")]),
        ({"a b": 1}, {}, [('["a b"]', "1", "null")]),
        ({"a": 1}, {"a": 1, "newer": None}, []),
        ({"a": None}, {"a": {}}, [("a", "null", "{}")]),
        (KNOWN, OTHER, [("sha256", '"a"', '"b"')]),
        (KNOWN, {"size": None, "sha256": None}, []),
        ({**KNOWN, "text": "x"}, KNOWN, []),
        ({**KNOWN, "text": "x"}, {**OTHER, "text": "y"}, [("text[0]", '"x"', '"y"')]),
        ({**KNOWN, "text": "x"}, OTHER, [("sha256", '"a"', '"b"')]),
        ({**KNOWN, "text": '{"k": 1}'}, {**OTHER, "text": '{"k": 2}'}, [("text.k", "1", "2")]),
    ],
)  # fmt: skip
def test_differences_are_told_field_by_field(was: Any, now: Any, expected: list[tuple[str, str, str]]) -> None:
    assert differences(was, now) == tuple(FieldDifference(*one) for one in expected)


def test_long_values_are_shown_in_part() -> None:
    (found,) = differences({"a": "x" * 1_000}, {"a": 1})
    assert (len(found.was), found.was[-1]) == (200, "…")
