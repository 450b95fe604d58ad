"""Chart templates as files: <folder>/<id>.json.

Owns finding and reading them. Must not know what makes a template valid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from effects import Document


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
                document = json.loads(path.read_bytes())
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
