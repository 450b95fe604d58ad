"""The usage of accounts as a table: used, limit, window, bar.

Owns how it looks. Must not know how usage is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rich.table import Table

from core.charts.accounts import LOCAL_ACCOUNT, mock_policies, real_policies
from core.charts.settings import ChartConfiguration
from core.charts.usage import Usage, read_usage
from effects import AccountPolicy, Document

_BAR_WIDTH = 20


def accounts_table(
    real_usage: Mapping[str, Document],
    mock_usage: Mapping[str, Document],
    configuration: ChartConfiguration,
    now: datetime,
) -> Table:
    """Return a row for each account that is configured or has been used."""
    table = Table("account", "kind", "used", "limit", "window", "bar")
    settings = configuration.settings
    real = tuple(one for one in configuration.accounts if one != LOCAL_ACCOUNT)
    for kind, stored, policies, default_limit in (
        (
            "real",
            real_usage,
            real_policies(real, settings.daily_limit, settings.requests_per_second),
            settings.daily_limit,
        ),
        ("mock", mock_usage, mock_policies(configuration.accounts), None),
    ):
        for usage in _usages(stored, policies, default_limit, now):
            limit = "none" if usage.limit is None else str(usage.limit)
            row = (usage.account.id, kind, str(usage.used), limit, f"{usage.window_start:%Y-%m-%d} UTC")
            table.add_row(*row, _bar(usage))
    return table


def _usages(
    stored: Mapping[str, Document], policies: tuple[AccountPolicy, ...], default_limit: int | None, now: datetime
) -> list[Usage]:
    """Return the usage of the configured accounts, then of those that only have a document."""
    documents = {path.partition("/")[2]: document for path, document in stored.items()}
    configured = {policy.id: policy for policy in policies}
    others = {
        one: AccountPolicy(id=one, daily_limit=default_limit, requests_per_second=None)
        for one in documents
        if one not in configured
    }
    return [read_usage(policy, documents.get(one), now) for one, policy in {**configured, **others}.items()]


def _bar(usage: Usage) -> str:
    if not usage.limit:
        return ""
    filled = min(_BAR_WIDTH, round(_BAR_WIDTH * usage.used / usage.limit))
    return "█" * filled + "░" * (_BAR_WIDTH - filled)
