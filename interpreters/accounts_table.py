"""The usage of accounts as a table: used, limit, window, bar.

Owns how it looks. Must not know how usage is counted.
"""

from __future__ import annotations

from datetime import datetime

from rich.table import Table

from core.charts.accounts import LOCAL_ACCOUNT, mock_policies, real_policies
from core.charts.settings import ChartConfiguration
from core.charts.usage import MOCK_USAGE_COLLECTION, USAGE_COLLECTION, Usage, read_usage, usage_path
from effects import AccountPolicy
from interpreters.ports import DocumentStore

_BAR_WIDTH = 20


def accounts_table(documents: DocumentStore, configuration: ChartConfiguration, now: datetime) -> Table:
    """Return a row for each account that is configured or has been used."""
    table = Table("account", "kind", "used", "limit", "window", "bar")
    settings = configuration.settings
    real = tuple(one for one in configuration.accounts if one != LOCAL_ACCOUNT)
    for kind, collection, policies in (
        ("real", USAGE_COLLECTION, real_policies(real, settings.daily_limit, settings.requests_per_second)),
        ("mock", MOCK_USAGE_COLLECTION, mock_policies(configuration.accounts)),
    ):
        for usage in _usages(
            documents, collection, policies, settings.daily_limit if kind == "real" else None, now
        ):
            limit = "none" if usage.limit is None else str(usage.limit)
            row = (usage.account.id, kind, str(usage.used), limit, f"{usage.window_start:%Y-%m-%d} UTC")
            table.add_row(*row, _bar(usage))
    return table


def _usages(
    documents: DocumentStore,
    collection: str,
    policies: tuple[AccountPolicy, ...],
    default_limit: int | None,
    now: datetime,
) -> list[Usage]:
    """Return the usage of the configured accounts, then of those that only have a document."""
    stored = documents.collection(collection)
    configured = {usage_path(collection, policy.id): policy for policy in policies}
    others = {
        path: AccountPolicy(id=path.partition("/")[2], daily_limit=default_limit, requests_per_second=None)
        for path in stored
        if path not in configured
    }
    return [read_usage(policy, stored.get(path), now) for path, policy in {**configured, **others}.items()]


def _bar(usage: Usage) -> str:
    if not usage.limit:
        return ""
    filled = min(_BAR_WIDTH, round(_BAR_WIDTH * usage.used / usage.limit))
    return "█" * filled + "░" * (_BAR_WIDTH - filled)
