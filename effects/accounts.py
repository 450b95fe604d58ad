"""Words about Chart-IMG accounts: quota and time slots, named by account id.

Owns reservations, exhaustion and setting aside. Must not know any API key.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from effects.word import word


@word
class AccountPolicy:
    """What an account allows, as configured; its usage document may say otherwise."""

    id: str
    """Stable id, also the id of the usage document."""
    daily_limit: int | None
    """Calls in a UTC day where the usage document states none; None means no limit."""
    requests_per_second: float | None
    """Calls in a second; None means slots are free at once."""


@word
class HeldAccount:
    """An account already counted for a request whose time slot was missed."""

    account_id: str
    """The account."""
    window_start: datetime
    """The window it was counted in."""


@word
class AccountNeed:
    """One request that needs an account."""

    chart_template_id: str
    """The request."""
    not_with: tuple[str, ...] = ()
    """Accounts that refused this request."""
    holding: HeldAccount | None = None
    """Set where only a new slot is needed: the quota is already counted."""
    not_before: datetime | None = None
    """Earliest slot that can be kept, where an earlier one was missed."""


@word
class ReserveAccount:
    """Count quota and take a time slot for each request, all in one commit."""

    reservation_id: str
    """Unique; the same reservation is never counted twice."""
    usage_collection: str
    """Collection of the usage documents."""
    accounts: tuple[AccountPolicy, ...]
    """All accounts, in order of preference."""
    exhausted: tuple[str, ...]
    """Accounts the provider said are at their limit."""
    rejected: tuple[str, ...]
    """Accounts whose key the provider rejected."""
    for_requests: tuple[AccountNeed, ...]
    """Who needs an account, in request order."""
    usable_until: datetime
    """No call starts at this moment or later, so no such slot is wanted."""


@word
class AccountAssignment:
    """An account and a time slot for one request."""

    chart_template_id: str
    """The request."""
    account_id: str
    """The account to call with."""
    slot_at: datetime
    """When the call may start."""
    window_start: datetime
    """The UTC day it is counted in; not usable after it."""


@word
class UnassignedRequest:
    """A request that got no account."""

    chart_template_id: str
    """The request."""
    reason: Literal["no_account", "too_late"]
    """No account had quota, or its slot would come after the time allowed."""


@word
class AccountsReserved:
    """At least one request has an account; the usage is counted."""

    usage_collection: str
    """Where it was counted."""
    assignments: tuple[AccountAssignment, ...]
    """Who calls when, and with which account."""
    unassigned: tuple[UnassignedRequest, ...]
    """Requests for which nothing was left."""
    exhausted_accounts: tuple[str, ...]
    """Accounts at their limit after this reservation."""
    window_start: datetime
    """The UTC day it was decided in."""
    at: datetime
    """When it happened."""


@word
class AccountsExhausted:
    """No request got an account; nothing was counted."""

    usage_collection: str
    """Where it would have been counted."""
    unassigned: tuple[UnassignedRequest, ...]
    """The requests, each with the reason."""
    exhausted_accounts: tuple[str, ...]
    """Accounts at their limit."""
    window_start: datetime
    """The UTC day it was decided in."""
    at: datetime
    """When it happened."""


@word
class ExhaustAccount:
    """Mark an account as used up for its window, because the provider said so."""

    usage_collection: str
    """Collection of the usage documents."""
    account: AccountPolicy
    """The account."""
    window_start: datetime
    """The reservation's window; another window is left alone."""


@word
class AccountExhausted:
    """The usage document says so now, or has moved on to another window."""

    account_id: str
    """The account."""
    at: datetime
    """When it happened."""


@word
class SetAccountAside:
    """Stop using an account in this process: the provider rejected its key."""

    account_id: str
    """The account."""
    reason: str
    """What the provider said."""


@word
class AccountSetAside:
    """This process uses the account no more."""

    account_id: str
    """The account."""
    at: datetime
    """When it happened."""
