"""Quota and time slots of accounts, as pure rules on their usage documents (§14.4, T-006).

Owns the counting: a UTC day's calls, raised before the call, and the moment the next call may start. Must not
know keys, or what is called. Rules are idempotent under the reservation's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from core.documents import Decision, Documents, FieldPath, UpdateDocument
from effects import (
    AccountAssignment,
    AccountExhausted,
    AccountNeed,
    AccountPolicy,
    AccountsExhausted,
    AccountsReserved,
    Document,
    ExhaustAccount,
    ReserveAccount,
    UnassignedRequest,
)
from effects.moments import parse_moment, rfc3339, utc_day
from effects.word import replace

USAGE_COLLECTION = "chart_img_accounts_usage"
MOCK_USAGE_COLLECTION = "chart_img_accounts_usage_mock"

SLOT_MARGIN = 0.10
"""Part of the interval added between slots, so that calls which start up to a tenth of a second late, each as late as
it likes, still keep within the plan's calls a second."""
REMEMBERED_RESERVATIONS = 32

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK_TRUST = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """One account's usage in the current window."""

    account: AccountPolicy
    used: int
    limit: int | None
    window_start: datetime
    next_slot: datetime
    reservations: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[AccountAssignment, ...] = field(default=())

    @property
    def is_exhausted(self) -> bool:
        """Return whether the window's calls are used up."""
        return self.limit is not None and self.used >= self.limit


def usage_path(collection: str, account_id: str) -> str:
    """Return the path of an account's usage document."""
    return f"{collection}/{account_id}"


def read_usage(account: AccountPolicy, document: Document | None, now: datetime) -> Usage:
    """Return the account's usage at this moment; a window of an earlier day begins anew."""
    document = document or {}
    limit = document["dailyLimit"] if _is_count(document.get("dailyLimit")) else account.daily_limit
    window_start = _window_start(document.get("windowStart"), now)
    is_new = utc_day(window_start) < utc_day(now)
    used = document.get("usageToday", 0)
    entries = document.get("reservations")
    return Usage(
        account=account,
        # A count that is not a number is taken for a full one: quota is never guessed to be there.
        used=0 if is_new else used if _is_count(used) else (limit or 0),
        limit=limit,
        window_start=utc_day(now if is_new else window_start),
        next_slot=_near(document.get("nextSlotAt"), now) or _LONG_AGO,
        reservations=tuple(one for one in entries if isinstance(one, Mapping))
        if isinstance(entries, list)
        else (),
    )


def _window_start(value: object, now: datetime) -> datetime:
    """Return the window a document's count belongs to; one that cannot be read is taken for today's."""
    forms = (value, f"{value}Z", f"{value}T00:00:00Z")
    moments = (moment for moment in (_near(form, now) for form in forms) if moment)
    return _LONG_AGO if value is None else next(moments, now)


def _near(value: object, now: datetime) -> datetime | None:
    """Return the moment in a field, unless it lies further ahead than any clock could be wrong."""
    moment = parse_moment(value)
    return None if moment is None or moment > now + _CLOCK_TRUST else moment


def reserve_accounts(
    documents: Documents, effect: ReserveAccount, now: datetime
) -> Decision[AccountsReserved | AccountsExhausted]:
    """Decide which account each request calls with, and when, in one commit."""
    books = [
        read_usage(account, documents[usage_path(effect.usage_collection, account.id)], now)
        for account in effect.accounts
    ]
    if made := _made_before(books, effect):
        return Decision(_outcome(books, effect, made, now))
    for need in effect.for_requests:
        books = _assign(books, need, effect, now)
    made = tuple(call for book in books for call in book.calls)
    changes = tuple(_count(book, effect) for book in books if book.calls)
    return Decision(_outcome(books, effect, made, now), changes)


def is_global_exhaustion(outcome: AccountsReserved | AccountsExhausted, accounts: int) -> bool:
    """Return whether a request got nothing because every one of the accounts is used up."""
    return bool(outcome.unassigned) and len(outcome.exhausted_accounts) == accounts


def exhaust_account(documents: Documents, effect: ExhaustAccount, now: datetime) -> Decision[AccountExhausted]:
    """Decide to set the count to the limit, exactly, if the window is still the reservation's."""
    path = usage_path(effect.usage_collection, effect.account.id)
    usage = read_usage(effect.account, documents[path], now)
    outcome = AccountExhausted(account_id=effect.account.id, at=now)
    if usage.window_start != effect.window_start or usage.limit is None or usage.used == usage.limit:
        return Decision(outcome)
    assign: dict[FieldPath, Any] = {("usageToday",): usage.limit, ("windowStart",): rfc3339(usage.window_start)}
    return Decision(outcome, (UpdateDocument(path=path, assign=assign),))


def _made_before(books: list[Usage], effect: ReserveAccount) -> tuple[AccountAssignment, ...]:
    """Return what this very reservation assigned in a commit whose answer was lost."""
    return tuple(
        AccountAssignment(
            chart_template_id=call["chartTemplateId"],
            account_id=book.account.id,
            slot_at=datetime.fromisoformat(call["slotAt"]),
            window_start=datetime.fromisoformat(one["windowStart"]),
        )
        for book in books
        for one in book.reservations
        if one.get("id") == effect.reservation_id
        for call in one["calls"]
    )


def _assign(books: list[Usage], need: AccountNeed, effect: ReserveAccount, now: datetime) -> list[Usage]:
    """Give the request the first account with quota and a free slot, else the one whose slot comes first."""
    able = [book for book in books if _may_call(book, need, effect)]
    if not able:
        return books
    chosen = min(able, key=lambda book: _slot(book, need, now))
    slot_at = _slot(chosen, need, now)
    if slot_at >= effect.usable_until:
        return books
    call = AccountAssignment(
        chart_template_id=need.chart_template_id,
        account_id=chosen.account.id,
        slot_at=slot_at,
        window_start=chosen.window_start,
    )
    used = replace(
        chosen,
        used=chosen.used + (0 if _is_counted(chosen, need) else 1),
        next_slot=slot_at + _interval(chosen.account),
        calls=(*chosen.calls, call),
    )
    return [used if book is chosen else book for book in books]


def _slot(book: Usage, need: AccountNeed, now: datetime) -> datetime:
    """Return the account's first free slot; where calls are not paced, that is always now."""
    is_paced = book.account.requests_per_second is not None
    return max(now, book.next_slot, need.not_before or now) if is_paced else now


def _may_call(book: Usage, need: AccountNeed, effect: ReserveAccount) -> bool:
    account_id = book.account.id
    if account_id in effect.exhausted or account_id in effect.rejected or account_id in need.not_with:
        return False
    if need.holding is not None and _is_counted(book, need):
        return True
    return not book.is_exhausted and not _holds_elsewhere(book, need)


def _is_counted(book: Usage, need: AccountNeed) -> bool:
    held = need.holding
    return held is not None and held.account_id == book.account.id and held.window_start == book.window_start


def _holds_elsewhere(book: Usage, need: AccountNeed) -> bool:
    """Return whether the request is counted on another account, which it keeps while the window lasts."""
    held = need.holding
    return held is not None and held.account_id != book.account.id and held.window_start == book.window_start


def _interval(account: AccountPolicy) -> timedelta:
    rate = account.requests_per_second
    return timedelta(seconds=(1 + SLOT_MARGIN) / rate) if rate else timedelta(0)


def _outcome(
    books: list[Usage], effect: ReserveAccount, made: tuple[AccountAssignment, ...], now: datetime
) -> AccountsReserved | AccountsExhausted:
    served = {call.chart_template_id for call in made}
    unassigned = tuple(
        UnassignedRequest(chart_template_id=need.chart_template_id, reason=_reason(books, need, effect))
        for need in effect.for_requests
        if need.chart_template_id not in served
    )
    exhausted = tuple(
        book.account.id for book in books if book.is_exhausted or book.account.id in effect.exhausted
    )
    if not made:
        return AccountsExhausted(
            usage_collection=effect.usage_collection,
            unassigned=unassigned,
            exhausted_accounts=exhausted,
            window_start=utc_day(now),
            at=now,
        )
    return AccountsReserved(
        usage_collection=effect.usage_collection,
        assignments=made,
        unassigned=unassigned,
        exhausted_accounts=exhausted,
        window_start=utc_day(now),
        at=now,
    )


def _reason(books: list[Usage], need: AccountNeed, effect: ReserveAccount) -> Literal["no_account", "too_late"]:
    return "too_late" if any(_may_call(book, need, effect) for book in books) else "no_account"


def _count(book: Usage, effect: ReserveAccount) -> UpdateDocument:
    entry = {
        "id": effect.reservation_id,
        "windowStart": rfc3339(book.window_start),
        "calls": [
            {"chartTemplateId": call.chart_template_id, "slotAt": rfc3339(call.slot_at)} for call in book.calls
        ],
    }
    return UpdateDocument(
        path=usage_path(effect.usage_collection, book.account.id),
        assign={
            ("usageToday",): book.used,
            ("windowStart",): rfc3339(book.window_start),
            ("nextSlotAt",): rfc3339(book.next_slot),
            ("reservations",): [*book.reservations, entry][-REMEMBERED_RESERVATIONS:],
        },
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
