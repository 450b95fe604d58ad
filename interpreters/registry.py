"""Prompts and schemas of reports: as files, <folder>/<id>.json, or as documents of two collections.

Owns finding and reading them. Must not know what makes one valid.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.documents import Decision, Documents, ReplaceDocument
from interpreters.ports import DocumentStore


@dataclass(frozen=True, slots=True)
class RegistryDocuments:
    """Prompts and schemas in two collections."""

    documents: DocumentStore
    prompts: str
    schemas: str

    def prompt(self, prompt_id: str) -> bytes | None:
        """Return the prompt document as JSON, None where there is none."""
        return self._read(f"{self.prompts}/{prompt_id}")

    def schema(self, schema_id: str) -> bytes | None:
        """Return the schema document as JSON, None where there is none."""
        return self._read(f"{self.schemas}/{schema_id}")

    def _read(self, path: str) -> bytes | None:
        document = self.documents.read((path,))[path]
        return None if document is None else json.dumps(document, default=str).encode()


@dataclass(frozen=True, slots=True)
class RegistryFolders:
    """Prompts and schemas in two folders."""

    prompts: Path
    schemas: Path

    def prompt(self, prompt_id: str) -> bytes | None:
        """Return the prompt document as JSON, None where there is none."""
        return _file(self.prompts, prompt_id)

    def schema(self, schema_id: str) -> bytes | None:
        """Return the schema document as JSON, None where there is none."""
        return _file(self.schemas, schema_id)


def _file(folder: Path, name: str) -> bytes | None:
    """Return the file's JSON; a file that is none is as if it held null, which no prompt and no schema is."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    content: Any = None
    with suppress(ValueError, RecursionError):
        content = json.loads(path.read_text("utf-8-sig"))
    return json.dumps(content).encode()


def store_registry(
    documents: DocumentStore, folders: RegistryFolders, prompts: str, schemas: str
) -> tuple[int, int]:
    """Store every prompt and schema of the folders as documents; return how many there are of each."""
    return _store(documents, folders.prompts, prompts), _store(documents, folders.schemas, schemas)


def _store(documents: DocumentStore, folder: Path, collection: str) -> int:
    found = {f"{collection}/{one.stem}": json.loads(one.read_text("utf-8-sig")) for one in folder.glob("*.json")}

    def rule(_: Documents) -> Decision[int]:
        changes = tuple(ReplaceDocument(path=path, document=document) for path, document in found.items())
        return Decision(len(found), changes)

    return documents.transact(sorted(found), rule)
