"""Chart templates: as files, <folder>/<id>.json, or as documents, chart_templates/<id>.

Owns finding and reading them. Must not know what makes a template valid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.charts.templates import compare_templates
from core.documents import Decision, Documents, ReplaceDocument
from effects import Document
from interpreters.ports import DocumentStore

TEMPLATES_COLLECTION = "chart_templates"


class TemplateDocuments:
    """Templates in a collection of documents (§14.1)."""

    def __init__(self, documents: DocumentStore) -> None:
        """Read templates from the collection chart_templates."""
        self._documents = documents

    def load(self, chart_template_ids: Sequence[str]) -> tuple[dict[str, Document], dict[str, str]]:
        """Return the templates that are there, in one round trip; a document is always readable."""
        found = self._documents.read([template_path(one) for one in chart_template_ids])
        documents = {one: found[template_path(one)] for one in chart_template_ids}
        return {one: document for one, document in documents.items() if document is not None}, {}


def template_path(chart_template_id: str) -> str:
    """Return the path of a template document."""
    return f"{TEMPLATES_COLLECTION}/{chart_template_id}"


class TemplateFolder:
    """Templates in a folder."""

    def __init__(self, folder: Path) -> None:
        """Read templates from the folder."""
        self._folder = folder

    def ids(self) -> list[str]:
        """Return the ids of all templates in the folder."""
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def load(self, chart_template_ids: Sequence[str]) -> tuple[dict[str, Document], dict[str, str]]:
        """Return the templates that are there, and what is wrong with those that cannot be read."""
        templates: dict[str, Document] = {}
        unreadable: dict[str, str] = {}
        for one in chart_template_ids:
            path = self._folder / f"{one}.json"
            try:
                document = json.loads(path.read_text("utf-8-sig"))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RecursionError) as error:
                unreadable[one] = f"{path.name} is not readable JSON: {error}"
                continue
            if isinstance(document, Mapping):
                templates[one] = document
            else:
                unreadable[one] = f"{path.name} must hold a JSON object"
        return templates, unreadable


def store_templates(
    documents: DocumentStore, templates: Mapping[str, Document], *, dry_run: bool
) -> dict[str, str]:
    """Store templates as documents; return for each whether it was created, changed or left unchanged."""

    def rule(found: Documents) -> Decision[dict[str, str]]:
        stored = {one: found[template_path(one)] for one in templates}
        done = compare_templates(stored, templates)
        changes = tuple(
            ReplaceDocument(path=template_path(one), document=templates[one])
            for one, what in done.items()
            if what != "unchanged" and not dry_run
        )
        return Decision(done, changes)

    return documents.transact([template_path(one) for one in templates], rule)
