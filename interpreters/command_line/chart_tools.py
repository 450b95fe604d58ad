"""Commands beside the work: templates, manifests, accounts, doctor.

Owns their flags and what they print. Must not know how anything is checked.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from core.charts.manifest import manifest_problems
from core.charts.templates import parse_template
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION
from core.problems import Problem
from effects import Document
from interpreters import shipped
from interpreters.clock import SystemClock
from interpreters.command_line.accounts_table import accounts_table
from interpreters.command_line.homes import chosen_state_dir, open_cloud, store_option, stored
from interpreters.command_line.inputs import (
    WrongCall,
    existing_folder,
    read_cloud_settings,
    read_configuration,
    read_json,
    say,
    stop,
)
from interpreters.ports import StoreUnusableError
from interpreters.templates import TemplateFolder


@click.group("templates")
def templates_group() -> None:
    """Look at chart templates."""


@templates_group.command("validate")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
def validate_templates(folder: Path | None) -> None:
    """Check every template in DIR (default: the shipped ones); exit 1 if one is not valid."""
    source = TemplateFolder(existing_folder("DIR", folder, shipped.TEMPLATES))
    _, problems = _validated(source)
    ids = source.ids()
    for found in problems:
        say(f"not valid: {found}")
    wrong = {str(found.where).split(".")[0] for found in problems}
    say(f"{len(ids) - len(wrong)} of {len(ids)} templates are valid")
    sys.exit(1 if problems else 0)


@templates_group.command("import")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def import_templates(folder: Path | None, *, dry_run: bool) -> None:
    """Put the templates of DIR (default: the shipped ones) into Firestore, in the collection chart_templates.

    Nothing is written if one of them is not valid. Templates that only Firestore has are left alone.
    """
    source = TemplateFolder(existing_folder("DIR", folder, shipped.TEMPLATES))
    templates, problems = _validated(source)
    if problems:
        raise WrongCall(tuple(problems))
    cloud = open_cloud()
    try:
        done = cloud.store_templates(templates, dry_run=dry_run)
    except StoreUnusableError as error:
        stop(cloud.name, f"cannot be written: {error}")
    for one, what in done.items():
        say(f"{what:<10} {one}")
    say(", ".join(f"{list(done.values()).count(what)} {what}" for what in ("created", "changed", "unchanged")))


def _validated(source: TemplateFolder) -> tuple[dict[str, Document], list[Problem]]:
    templates, unreadable = source.load(source.ids())
    problems = [Problem(f"{one}.json", said) for one, said in unreadable.items()]
    for one, document in templates.items():
        problems += parse_template(one, document).swap().value_or(())
    return templates, problems


@click.group("manifest")
def manifest_group() -> None:
    """Look at manifests."""


@manifest_group.command("validate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate_manifest(files: tuple[Path, ...]) -> None:
    """Check that each FILE is a ChartsOutputsManifest; exit 1 if one is not."""
    wrong = 0
    for file in files:
        problems = manifest_problems(read_json(file, str(file)))
        for found in problems:
            say(f"not valid: {file}: {found}")
        wrong += bool(problems)
    say(f"{len(files) - wrong} of {len(files)} manifests are valid")
    sys.exit(1 if wrong else 0)


@click.group("accounts")
def accounts_group() -> None:
    """Look at Chart-IMG accounts."""


@accounts_group.command("status")
@click.option("--state-dir", type=click.Path(path_type=Path), help="State directory to look at.")
@click.option("--accounts-config-path", type=click.Path(path_type=Path), help="Accounts as for run-local.")
@store_option
def accounts_status(state_dir: Path | None, accounts_config_path: Path | None, store: str) -> None:
    """Show how much of each account is used in its window (a UTC day)."""
    configuration = read_configuration(None, None, accounts_config_path)
    folder = chosen_state_dir(state_dir)
    real, mock = (stored(store, folder, collection) for collection in (USAGE_COLLECTION, MOCK_USAGE_COLLECTION))
    Console().print(accounts_table(real, mock, configuration, SystemClock().now()))


@click.command("doctor")
@click.option("--charts-bucket", metavar="gs://NAME", help="Bucket to look at. Default: $CHARTS_BUCKET.")
def doctor(charts_bucket: str | None) -> None:
    """Check configuration, credentials, database and bucket, and say what to do; exit 1 if something is wrong."""
    from interpreters.doctor import examine  # noqa: PLC0415 - the libraries are slow to import

    configuration, settings = read_configuration(None, charts_bucket, None), read_cloud_settings()
    sick = 0
    for finding in examine(configuration, settings):
        say(f"{'ok ' if finding.is_well else 'BAD'} {finding.check:<14} {finding.said}")
        if not finding.is_well:
            say(f"    {'':<14} what to do: {finding.advice}")
        sick += not finding.is_well
    sys.exit(1 if sick else 0)
