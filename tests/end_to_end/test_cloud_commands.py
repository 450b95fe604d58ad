"""The commands that work on Firestore and Cloud Storage, as installed, against the sandbox."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.cloud import firestore, storage

from core.charts.manifest import manifest_problems
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION
from effects.moments import rfc3339
from interpreters.documents.firestore import FirestoreDocuments
from interpreters.sandbox.whole import Sandbox
from interpreters.shipped import FLOW_RUNS, TEMPLATES
from interpreters.templates import TemplateFolder, store_templates
from tests.builders import STEP_ID, a_template
from tests.emulators import (
    FIRESTORE_HOST,
    GIVEN_FIRESTORE,
    GIVEN_STORAGE,
    MODES,
    STORAGE_HOST,
    a_bucket,
    a_project,
    firestore_on,
    storage_on,
)
from tests.end_to_end.console import Call, Ended, call_all, run_local, write_json
from tests.journals import replayed

FIVE_CHARTS: dict[str, Any] = json.loads((FLOW_RUNS / "five_charts.json").read_text("utf-8"))
RUN_ID = FIVE_CHARTS["runId"]
FLOW_RUN = f"flow_runs/{RUN_ID}"
FIRESTORE = ("--store", "firestore")
needs_our_firestore = pytest.mark.skipif(
    GIVEN_FIRESTORE is not None,
    reason=f"{FIRESTORE_HOST} is set, and this test needs the faults of our own server",
)
REAL, MOCK = {"CHARTS_API_MODE": "real"}, {"CHARTS_API_MODE": "mock"}


class CloudInTests:
    """The sandbox, and Google's clients on it; every project and bucket is new."""

    def __init__(self, sandbox: Sandbox, stack: ExitStack) -> None:
        given = {FIRESTORE_HOST: GIVEN_FIRESTORE, STORAGE_HOST: GIVEN_STORAGE}
        self.sandbox = sandbox
        self.variables = {**sandbox.environment(), **{name: host for name, host in given.items() if host}}
        self.storage: storage.Client = stack.enter_context(storage_on(self.variables[STORAGE_HOST]))
        self._stack = stack

    def project(self, *, seeded: bool = True) -> Project:
        name = a_project()
        client = self._stack.enter_context(firestore_on(self.variables[FIRESTORE_HOST], name))
        bucket = a_bucket(self.storage)
        one = Project(self, name, client, bucket)
        if seeded:
            folder = TemplateFolder(TEMPLATES)
            store_templates(
                FirestoreDocuments(lambda: client, "precondition"), folder.load(folder.ids())[0], dry_run=False
            )
        return one


@dataclass
class Project:
    cloud: CloudInTests
    name: str
    client: firestore.Client
    bucket: str

    def variables(self, **changes: str) -> dict[str, str]:
        ours = {"GOOGLE_CLOUD_PROJECT": self.name, "CHARTS_BUCKET": f"gs://{self.bucket}"}
        return {**self.cloud.variables, **ours, **changes}

    def objects(self) -> dict[str, storage.Blob]:
        return {one.name: one for one in self.cloud.storage.list_blobs(self.bucket)}

    def get(self, path: str) -> Any:
        return self.client.document(path).get().to_dict()

    def collection(self, name: str) -> dict[str, Any]:
        return {one.id: one.to_dict() for one in self.client.collection(name).stream()}

    def deny(self) -> None:
        """Let the sandbox's Firestore refuse everything that is asked of this project."""
        self.cloud.sandbox.firestore.faults.add(
            "*", code=grpc.StatusCode.PERMISSION_DENIED, times=100_000, matching=self._is_asked
        )

    def _is_asked(self, request: Any) -> bool:
        return f"projects/{self.name}/" in f"{getattr(request, 'database', '')} {getattr(request, 'parent', '')}/"


@pytest.fixture(scope="module")
def cloud() -> Iterator[CloudInTests]:
    with ExitStack() as stack, Sandbox() as sandbox:
        yield CloudInTests(sandbox, stack)
        stack.close()


def assert_no_traceback(ended: Ended) -> None:
    assert "Traceback" not in ended.stdout + ended.stderr


# run-local.

RUNS = {
    f"{name}, {mode}": (variables, mode) for name, variables in (("mock", MOCK), ("real", REAL)) for mode in MODES
}


@pytest.fixture(scope="module")
def projects(cloud: CloudInTests) -> dict[str, Project]:
    return {name: cloud.project() for name in RUNS}


@pytest.fixture(scope="module")
def runs(projects: Mapping[str, Project], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    return call_all(
        {
            name: run_local(
                tmp_path_factory.mktemp("run"),
                FIVE_CHARTS,
                flags=FIRESTORE,
                variables=projects[name].variables(
                    **variables, FIRESTORE_CONCURRENCY=mode, JOURNAL_URI=f"gs://{projects[name].bucket}/journals"
                ),
                real=name == "mock, transaction",
            )
            for name, (variables, mode) in RUNS.items()
        }
    )


@pytest.mark.parametrize("name", RUNS)
def test_five_charts_are_exported_to_firestore_and_cloud_storage(
    runs: Mapping[str, Ended], projects: Mapping[str, Project], name: str
) -> None:
    ended, project = runs[name], projects[name]
    assert (ended.code, ended.summary()["itemsCount"]) == (0, 5)
    assert ended.summary()["chartsApiMode"] == name.partition(",")[0]

    document = project.get(FLOW_RUN)
    step = document["steps"][STEP_ID]
    assert (step["status"], step["outputs"]["execution"]["claim"]["attempt"]) == ("SUCCEEDED", 1)
    assert {**document, "steps": {}} == {**FIVE_CHARTS, "steps": {}}

    objects = project.objects()
    folder = f"charts/{RUN_ID}/{STEP_ID}"
    assert step["outputs"]["outputsManifestGcsUri"] == f"gs://{project.bucket}/{folder}/manifest.json"
    manifest = json.loads(objects[f"{folder}/manifest.json"].download_as_bytes())
    assert manifest_problems(manifest) == ()
    named = {item["png_gcs_uri"].removeprefix(f"gs://{project.bucket}/") for item in manifest["items"]}
    journals = {one for one in objects if one.startswith(f"journals/{RUN_ID}/")}
    assert set(objects) - journals == named | {f"{folder}/manifest.json"}
    assert {objects[one].content_type for one in named} == {"image/png"}
    assert objects[f"{folder}/manifest.json"].content_type == "application/json"


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_firestore_leaves_a_journal_that_agrees(
    runs: Mapping[str, Ended], projects: Mapping[str, Project], name: str
) -> None:
    assert runs[name].code == 0
    (journal,) = (one for path, one in projects[name].objects().items() if path.startswith("journals/"))
    again = replayed(journal.download_as_bytes().decode())
    assert (again.found, again.doubts, again.run.is_cut) == ((), (), False)


@pytest.mark.parametrize("name", RUNS)
def test_usage_is_counted_in_firestore(
    runs: Mapping[str, Ended], projects: Mapping[str, Project], name: str
) -> None:
    assert runs[name].code == 0
    used, unused = USAGE_COLLECTION, MOCK_USAGE_COLLECTION
    if name.startswith("mock"):
        used, unused = unused, used
    assert sum(one["usageToday"] for one in projects[name].collection(used).values()) == 5
    assert projects[name].collection(unused) == {}


def test_no_file_is_left_behind_by_a_run_on_firestore(cloud: CloudInTests, tmp_path: Path) -> None:
    variables = cloud.project().variables(**MOCK)
    done = copy.deepcopy(FIVE_CHARTS)
    done["steps"][STEP_ID]["status"] = "SUCCEEDED"
    (ended,) = call_all({"": run_local(tmp_path, done, flags=FIRESTORE, variables=variables)}).values()
    assert (ended.code, ended.summary()["status"]) == (0, "NOOP")
    assert [path.name for path in tmp_path.iterdir()] == ["flow_run.json"]


# Calls that cannot be made, or that Firestore refuses.


@pytest.fixture(scope="module")
def held(cloud: CloudInTests) -> Project:
    project = cloud.project()
    run = copy.deepcopy(FIVE_CHARTS)
    lease = {"token": "theirs", "attempt": 1, "leaseUntil": rfc3339(datetime.now(UTC) + timedelta(minutes=9))}
    run["steps"][STEP_ID] |= {"status": "RUNNING", "outputs": {"execution": {"claim": lease}}}
    project.client.document(FLOW_RUN).set(run)
    return project


@pytest.fixture(scope="module")
def denied(cloud: CloudInTests) -> Project:
    project = cloud.project()
    project.deny()
    return project


@pytest.fixture(scope="module")
def refusals(
    cloud: CloudInTests, held: Project, denied: Project, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Ended]:
    def run(variables: Mapping[str, str], document: Any = FIVE_CHARTS) -> Call:
        return run_local(tmp_path_factory.mktemp("refused"), document, flags=FIRESTORE, variables=variables)

    fresh = cloud.project(seeded=False).variables()
    without = {name: text for name, text in fresh.items() if name != "GOOGLE_CLOUD_PROJECT"}
    here = tmp_path_factory.mktemp("refused")
    calls = {
        "held": run(held.variables()),
        "no project": run(without),
        "bad concurrency": run({**fresh, "FIRESTORE_CONCURRENCY": "optimistic"}),
        "half a character": run(fresh, {**FIVE_CHARTS, "note": "\ud800"}),
        "a number of 80 bits": run(fresh, {**FIVE_CHARTS, "note": 2**80}),
        "import": Call(here, ("templates", "import"), variables=denied.variables()),
        "accounts": Call(here, ("accounts", "status", *FIRESTORE), variables=denied.variables()),
        **{mode: run(denied.variables(FIRESTORE_CONCURRENCY=mode)) for mode in MODES},
    }
    return call_all(calls)


def test_a_run_that_a_live_worker_holds_is_left_alone(refusals: Mapping[str, Ended], held: Project) -> None:
    assert (refusals["held"].code, refusals["held"].stdout) == (2, "")
    (problem,) = refusals["held"].problems()
    assert f"a worker is at work on {STEP_ID}" in problem
    assert held.name in problem
    assert held.get(FLOW_RUN)["steps"][STEP_ID]["outputs"]["execution"]["claim"]["token"] == "theirs"
    assert held.objects() == {}


@pytest.mark.parametrize(
    ("name", "variable"), [("no project", "GOOGLE_CLOUD_PROJECT"), ("bad concurrency", "FIRESTORE_CONCURRENCY")]
)
def test_a_setting_that_is_missing_or_wrong_is_named(
    refusals: Mapping[str, Ended], name: str, variable: str
) -> None:
    assert (refusals[name].code, refusals[name].stdout) == (2, "")
    (problem,) = refusals[name].problems()
    assert problem.startswith(f"{variable}: ")
    assert "optimistic" not in problem


@pytest.mark.parametrize("name", ["half a character", "a number of 80 bits"])
def test_a_flow_run_that_firestore_cannot_hold_is_refused_in_words(
    refusals: Mapping[str, Ended], name: str
) -> None:
    assert_no_traceback(refusals[name])
    assert (refusals[name].code, refusals[name].stdout) == (2, "")
    (problem,) = refusals[name].problems()
    assert "cannot be written" in problem


@needs_our_firestore
@pytest.mark.parametrize("name", [*MODES, "import", "accounts"])
def test_a_database_that_refuses_is_said_in_words(refusals: Mapping[str, Ended], name: str) -> None:
    assert_no_traceback(refusals[name])
    assert (refusals[name].code, refusals[name].stdout) == (2, "")
    (problem,) = refusals[name].problems()
    assert "a fault on purpose" in problem


# templates import.


@pytest.fixture(scope="module")
def imports(
    cloud: CloudInTests, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Ended, dict[str, Any]]]:
    """Return each call in order, with what the collection held after it."""
    folder, project = tmp_path_factory.mktemp("imports"), cloud.project(seeded=False)
    templates = project.client.collection("chart_templates")
    write_json(folder / "bad" / "good.json", a_template("good"))
    write_json(folder / "bad" / "bad.json", a_template("another"))
    (folder / "empty").mkdir()

    def call(*arguments: str) -> tuple[Ended, dict[str, Any]]:
        one = Call(folder, ("templates", "import", *arguments), variables=project.variables())
        (ended,) = call_all({"": one}).values()
        return ended, project.collection("chart_templates")

    done = {"dry run": call("--dry-run"), "first": call()}
    templates.document("ctpl_price_psar_adi_v1").update({"description": "another", "theirs": 1})
    templates.document("only_in_firestore").set({"id": "only_in_firestore"})
    return {**done, "second": call(str(TEMPLATES)), "invalid": call("bad"), "empty": call("empty")}


def shipped() -> dict[str, Any]:
    folder = TemplateFolder(TEMPLATES)
    return dict(folder.load(folder.ids())[0])


def test_a_dry_run_of_an_import_says_what_it_would_do_and_writes_nothing(
    imports: Mapping[str, tuple[Ended, dict[str, Any]]],
) -> None:
    ended, stored = imports["dry run"]
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == "5 created, 0 changed, 0 unchanged"
    assert stored == {}


def test_an_import_creates_the_shipped_templates(imports: Mapping[str, tuple[Ended, dict[str, Any]]]) -> None:
    ended, stored = imports["first"]
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == imports["dry run"][0].stdout
    assert [line for line in ended.stdout.splitlines() if line.startswith("created ")] == [
        f"created    {one}" for one in sorted(shipped())
    ]
    assert stored == shipped()


def test_a_second_import_changes_what_differs_and_leaves_the_rest_alone(
    imports: Mapping[str, tuple[Ended, dict[str, Any]]],
) -> None:
    ended, stored = imports["second"]
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == "0 created, 1 changed, 4 unchanged"
    assert "changed    ctpl_price_psar_adi_v1" in ended.stdout.splitlines()
    assert stored == {**shipped(), "only_in_firestore": {"id": "only_in_firestore"}}


def test_an_import_with_an_invalid_template_writes_none(
    imports: Mapping[str, tuple[Ended, dict[str, Any]]],
) -> None:
    ended, stored = imports["invalid"]
    assert (ended.code, ended.stdout) == (2, "")
    assert any("bad" in problem and "must be 'bad'" in problem for problem in ended.problems())
    assert stored == imports["second"][1]


def test_an_import_of_no_templates_does_nothing(imports: Mapping[str, tuple[Ended, dict[str, Any]]]) -> None:
    ended, stored = imports["empty"]
    assert_no_traceback(ended)
    assert ended.code == 0
    assert ended.stdout.splitlines()[-1] == "0 created, 0 changed, 0 unchanged"
    assert stored == imports["second"][1]


# accounts status and doctor.


@pytest.fixture(scope="module")
def looks(
    cloud: CloudInTests,
    runs: Mapping[str, Ended],
    projects: Mapping[str, Project],
    denied: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Ended]:
    folder = tmp_path_factory.mktemp("looks")
    used = projects["real, transaction"].variables()
    unseeded = cloud.project(seeded=False).variables()
    return call_all(
        {
            "accounts": Call(folder, ("accounts", "status", *FIRESTORE), variables=used),
            "no accounts": Call(folder, ("accounts", "status", *FIRESTORE), variables=unseeded),
            "well": Call(folder, ("doctor",), variables=used),
            "no templates": Call(folder, ("doctor",), variables=unseeded),
            "no bucket": Call(folder, ("doctor", "--charts-bucket", "gs://no-such-bucket"), variables=used),
            "no database": Call(folder, ("doctor",), variables=denied.variables()),
            "no project": Call(folder, ("doctor",), variables={**used, "GOOGLE_CLOUD_PROJECT": ""}),
        }
    )


def test_accounts_status_shows_what_a_run_on_firestore_used(looks: Mapping[str, Ended]) -> None:
    rows = [line.split("│")[1:-1] for line in looks["accounts"].stdout.splitlines() if "│" in line]
    used = {row[0].strip(): (row[1].strip(), row[2].strip(), row[3].strip()) for row in rows if "real" in row[1]}
    assert looks["accounts"].code == 0
    assert set(used) == {"acc1", "acc2"}
    assert sum(int(count) for _, count, _ in used.values()) == 5
    assert {limit for _, _, limit in used.values()} == {"500"}


def test_accounts_status_shows_accounts_that_were_never_used(looks: Mapping[str, Ended]) -> None:
    assert looks["no accounts"].code == 0
    assert "acc1" in looks["no accounts"].stdout


def test_the_doctor_finds_everything_well_and_leaves_nothing_behind(
    looks: Mapping[str, Ended], projects: Mapping[str, Project]
) -> None:
    lines = looks["well"].stdout.splitlines()
    assert (looks["well"].code, looks["well"].stderr) == (0, "")
    assert [line.split()[:2] for line in lines] == [
        ["ok", one] for one in ("configuration", "credentials", "database", "bucket")
    ]
    assert "5 chart templates" in lines[2]
    assert not [name for name in projects["real, transaction"].objects() if name.startswith("doctor")]
    assert "sandbox-key-of" not in looks["well"].stdout


def test_the_doctor_says_how_to_seed_templates(looks: Mapping[str, Ended]) -> None:
    assert looks["no templates"].code == 0
    assert (
        "0 chart templates; seed them with `worker-chart-export templates import`" in looks["no templates"].stdout
    )


@pytest.mark.parametrize(
    ("name", "check", "advice"),
    [
        ("no bucket", "bucket", ("create gs://no-such-bucket", "roles/storage.objectUser")),
        pytest.param(
            "no database",
            "database",
            ("create the Firestore database (default)", "roles/datastore.user"),
            marks=needs_our_firestore,
        ),
    ],
)
def test_the_doctor_says_what_is_wrong_and_what_to_do(
    looks: Mapping[str, Ended], name: str, check: str, advice: tuple[str, ...]
) -> None:
    lines = looks[name].stdout.splitlines()
    assert (looks[name].code, looks[name].stderr) == (1, "")
    (bad,) = [i for i, line in enumerate(lines) if line.startswith("BAD")]
    assert lines[bad].split()[1] == check
    assert "what to do: " in lines[bad + 1]
    assert [text for text in advice if text not in lines[bad + 1]] == []
    assert len([line for line in lines if line.startswith("ok ")]) == 3


def test_the_doctor_names_a_setting_that_is_missing(looks: Mapping[str, Ended]) -> None:
    assert (looks["no project"].code, looks["no project"].stdout) == (2, "")
    assert looks["no project"].problems()[0].startswith("GOOGLE_CLOUD_PROJECT: ")
