from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.charts.usage import (
    REMEMBERED_RESERVATIONS,
    exhaust_account,
    read_usage,
    reserve_accounts,
    usage_path,
)
from core.documents import Decision, apply_change
from effects import (
    AccountNeed,
    AccountPolicy,
    AccountsExhausted,
    AccountsReserved,
    ExhaustAccount,
    HeldAccount,
    ReserveAccount,
)
from effects.moments import rfc3339, utc_day
from tests.builders import NOW
from tests.strategies import around_midnight, json_values, many, policies

COLLECTION = "chart_img_accounts_usage"
TODAY = utc_day(NOW)


def account(account_id: str = "acc1", limit: int | None = 44, rate: float | None = 1.0) -> AccountPolicy:
    return AccountPolicy(id=account_id, daily_limit=limit, requests_per_second=rate)


def reservation(
    *needs: str | AccountNeed, accounts: tuple[AccountPolicy, ...] = (account(),), **changes: Any
) -> ReserveAccount:
    made = ReserveAccount(
        reservation_id="r1",
        usage_collection=COLLECTION,
        accounts=accounts,
        exhausted=(),
        rejected=(),
        for_requests=tuple(AccountNeed(chart_template_id=one) if isinstance(one, str) else one for one in needs),
        usable_until=NOW + timedelta(days=2),
    )
    return replace(made, **changes)


class Books:
    """Usage documents on which rules are committed."""

    def __init__(self, **documents: dict[str, Any]) -> None:
        self.documents: dict[str, Any] = {usage_path(COLLECTION, one): doc for one, doc in documents.items()}

    def commit(self, decision: Decision[Any]) -> Any:
        for change in decision.changes:
            self.documents[change.path] = apply_change(self.documents.get(change.path), change)
        return decision.outcome

    def reserve(self, effect: ReserveAccount, now: datetime = NOW) -> AccountsReserved | AccountsExhausted:
        paths = [usage_path(effect.usage_collection, one.id) for one in effect.accounts]
        outcome: AccountsReserved | AccountsExhausted = self.commit(
            reserve_accounts({path: self.documents.get(path) for path in paths}, effect, now)
        )
        return outcome

    def exhaust(self, effect: ExhaustAccount, now: datetime = NOW) -> None:
        path = usage_path(effect.usage_collection, effect.account.id)
        self.commit(exhaust_account({path: self.documents.get(path)}, effect, now))

    def __getitem__(self, account_id: str) -> dict[str, Any]:
        document: dict[str, Any] = self.documents[usage_path(COLLECTION, account_id)]
        return document


def assigned(outcome: AccountsReserved | AccountsExhausted) -> dict[str, str]:
    assignments = outcome.assignments if isinstance(outcome, AccountsReserved) else ()
    return {one.chart_template_id: one.account_id for one in assignments}


def test_scenario_1_a_missing_document_is_created_and_counted_before_the_call() -> None:
    books = Books()
    outcome = books.reserve(reservation("a"))
    assert assigned(outcome) == {"a": "acc1"}
    assert (books["acc1"]["usageToday"], books["acc1"]["windowStart"]) == (1, "2025-12-15T00:00:00Z")


def test_scenario_2_yesterday_s_window_begins_anew() -> None:
    books = Books(acc1={"usageToday": 44, "windowStart": "2025-12-14T00:00:00Z", "note": "kept"})
    assert assigned(books.reserve(reservation("a"))) == {"a": "acc1"}
    assert books["acc1"]["usageToday"] == 1
    assert books["acc1"]["windowStart"] == "2025-12-15T00:00:00Z"
    assert books["acc1"]["note"] == "kept"


def test_scenario_3_one_request_at_a_time_follows_the_order_of_accounts() -> None:
    books = Books()
    accounts = (account("acc1"), account("acc2"))
    for number in range(3):
        outcome = books.reserve(
            reservation("a", accounts=accounts, reservation_id=f"r{number}"), NOW + timedelta(seconds=2 * number)
        )
        assert assigned(outcome) == {"a": "acc1"}


def test_scenario_4_an_account_at_its_limit_is_skipped() -> None:
    books = Books(acc1={"usageToday": 44, "windowStart": rfc3339(TODAY)})
    assert assigned(books.reserve(reservation("a", accounts=(account("acc1"), account("acc2"))))) == {"a": "acc2"}


def test_scenario_5_with_every_account_exhausted_nothing_is_counted() -> None:
    books = Books(acc1={"usageToday": 44, "windowStart": rfc3339(TODAY)})
    outcome = books.reserve(reservation("a"))
    assert isinstance(outcome, AccountsExhausted)
    assert outcome.exhausted_accounts == ("acc1",)
    assert [(one.chart_template_id, one.reason) for one in outcome.unassigned] == [("a", "no_account")]
    assert books["acc1"] == {"usageToday": 44, "windowStart": rfc3339(TODAY)}


@pytest.mark.parametrize(("in_document", "of_account", "expected"), [(None, 44, 44), (10, 44, 10), ("x", 44, 44)])
def test_scenario_6_exhausting_sets_the_count_to_the_limit_exactly(
    in_document: Any, of_account: int, expected: int
) -> None:
    document = {"usageToday": 3, "windowStart": rfc3339(TODAY), "dailyLimit": in_document}
    books = Books(acc1={key: value for key, value in document.items() if value is not None})
    books.exhaust(
        ExhaustAccount(usage_collection=COLLECTION, account=account(limit=of_account), window_start=TODAY)
    )
    assert books["acc1"]["usageToday"] == expected


def test_exhausting_leaves_another_window_alone() -> None:
    books = Books(acc1={"usageToday": 3, "windowStart": rfc3339(TODAY + timedelta(days=1))})
    effect = ExhaustAccount(usage_collection=COLLECTION, account=account(), window_start=TODAY)
    books.exhaust(effect, NOW + timedelta(days=1))
    assert books["acc1"]["usageToday"] == 3


def test_exhausting_an_account_without_limit_writes_nothing() -> None:
    books = Books()
    books.exhaust(ExhaustAccount(usage_collection=COLLECTION, account=account(limit=None), window_start=TODAY))
    assert books.documents == {}


def test_scenario_7_every_reservation_counts_an_attempt() -> None:
    books = Books()
    for number in range(5):
        books.reserve(reservation("a", reservation_id=f"r{number}"))
    assert books["acc1"]["usageToday"] == 5


@pytest.mark.parametrize(
    ("document", "policy_limit", "expected"),
    [
        ({"dailyLimit": 7}, 44, 7),
        ({"dailyLimit": 0}, 44, 0),
        ({}, 44, 44),
        ({"dailyLimit": True}, 44, 44),
        ({}, None, None),
    ],
)
def test_the_limit_is_the_document_s_then_the_account_s(
    document: dict[str, Any], policy_limit: int | None, expected: int | None
) -> None:
    assert read_usage(account(limit=policy_limit), document, NOW).limit == expected


@given(
    document=st.dictionaries(
        st.sampled_from(["usageToday", "windowStart", "dailyLimit", "nextSlotAt", "reservations"]), json_values
    )
)
def test_any_usage_document_can_be_read_and_never_grants_more_than_the_limit(document: dict[str, Any]) -> None:
    books = Books(acc1=document)
    outcome = books.reserve(reservation(*"abcdefgh", accounts=(account(limit=6),)))
    limit = read_usage(account(limit=6), document, NOW).limit
    assert limit is not None
    assert len(assigned(outcome)) <= max(limit, 0)


def test_a_slot_further_ahead_than_any_clock_is_ignored() -> None:
    books = Books(acc1={"nextSlotAt": "2099-01-01T00:00:00Z", "usageToday": 44})
    assert assigned(books.reserve(reservation("a"))) == {"a": "acc1"}


@pytest.mark.parametrize("window", ["2025-12-15T00:00:00", "2025-12-15", "garbage", 7, "2099-01-01T00:00:00Z"])
def test_a_window_that_cannot_be_read_does_not_give_quota_back(window: Any) -> None:
    books = Books(acc1={"windowStart": window, "usageToday": 44})
    assert isinstance(books.reserve(reservation("a")), AccountsExhausted)


@pytest.mark.parametrize("window", ["2025-12-14T00:00:00", "2025-12-14"])
def test_a_window_without_a_zone_is_utc(window: str) -> None:
    books = Books(acc1={"windowStart": window, "usageToday": 44})
    assert assigned(books.reserve(reservation("a"))) == {"a": "acc1"}


def test_a_window_that_another_clock_has_already_opened_is_kept() -> None:
    tomorrow = TODAY + timedelta(days=1)
    books = Books(acc1={"windowStart": rfc3339(tomorrow), "usageToday": 43})
    outcome = books.reserve(reservation(*"ab"), tomorrow - timedelta(seconds=1))
    assert assigned(outcome) == {"a": "acc1"}
    assert books["acc1"]["windowStart"] == rfc3339(tomorrow)


def test_a_count_that_is_no_number_is_taken_for_a_full_one() -> None:
    books = Books(acc1={"usageToday": "many", "windowStart": rfc3339(TODAY)})
    assert isinstance(books.reserve(reservation("a")), AccountsExhausted)


def test_one_reservation_serves_all_requests_and_each_account_is_written_once() -> None:
    effect = reservation(*"abcde", accounts=(account("acc1", 2), account("acc2", 2)))
    decision = reserve_accounts({usage_path(COLLECTION, one): None for one in ("acc1", "acc2")}, effect, NOW)
    assert isinstance(decision.outcome, AccountsReserved)
    assert assigned(decision.outcome) == {"a": "acc1", "b": "acc2", "c": "acc1", "d": "acc2"}
    assert [one.chart_template_id for one in decision.outcome.unassigned] == ["e"]
    assert decision.outcome.exhausted_accounts == ("acc1", "acc2")
    assert len(decision.changes) == 2


def test_a_request_gets_the_first_account_with_a_free_slot_else_the_one_whose_slot_comes_first() -> None:
    books = Books()
    accounts = (account("slow", rate=0.5), account("quick", rate=10.0))
    outcome = books.reserve(reservation(*"abcd", accounts=accounts))
    assert assigned(outcome) == {"a": "slow", "b": "quick", "c": "quick", "d": "quick"}


def test_slots_of_one_account_leave_a_margin() -> None:
    outcome = Books().reserve(reservation(*"abc"))
    assert isinstance(outcome, AccountsReserved)
    slots = [one.slot_at for one in outcome.assignments]
    assert slots == [NOW, NOW + timedelta(seconds=1.1), NOW + timedelta(seconds=2.2)]


def test_without_a_rate_all_slots_are_free_at_once() -> None:
    outcome = Books().reserve(reservation(*"abc", accounts=(account(rate=None),)))
    assert isinstance(outcome, AccountsReserved)
    assert {one.slot_at for one in outcome.assignments} == {NOW}


def test_a_slot_after_the_time_allowed_is_not_taken_and_not_counted() -> None:
    books = Books()
    outcome = books.reserve(reservation(*"abc", usable_until=NOW + timedelta(seconds=1.5)))
    assert assigned(outcome) == {"a": "acc1", "b": "acc1"}
    assert [(one.chart_template_id, one.reason) for one in outcome.unassigned] == [("c", "too_late")]
    assert books["acc1"]["usageToday"] == 2


@pytest.mark.parametrize("changes", [{"exhausted": ("acc1",)}, {"rejected": ("acc1",)}])
def test_accounts_set_aside_are_not_used(changes: dict[str, Any]) -> None:
    effect = reservation("a", accounts=(account("acc1"), account("acc2")), **changes)
    assert assigned(Books().reserve(effect)) == {"a": "acc2"}


def test_an_account_that_refused_a_request_still_serves_the_others() -> None:
    refused = AccountNeed(chart_template_id="a", not_with=("acc1",))
    effect = reservation(refused, "b", accounts=(account("acc1"), account("acc2")))
    assert assigned(Books().reserve(effect)) == {"a": "acc2", "b": "acc1"}


def held(account_id: str = "acc1", window: datetime = TODAY) -> AccountNeed:
    return AccountNeed(
        chart_template_id="a",
        holding=HeldAccount(account_id=account_id, window_start=window),
        not_before=NOW + timedelta(seconds=1),
    )


def test_a_missed_slot_is_replaced_without_counting_again_even_at_the_limit() -> None:
    books = Books(acc1={"usageToday": 44, "windowStart": rfc3339(TODAY)})
    outcome = books.reserve(reservation(held(), accounts=(account("acc1"), account("acc2"))))
    assert isinstance(outcome, AccountsReserved)
    assert [(one.account_id, one.slot_at) for one in outcome.assignments] == [("acc1", NOW + timedelta(seconds=1))]
    assert books["acc1"]["usageToday"] == 44


def test_what_was_counted_yesterday_is_counted_again_today() -> None:
    books = Books()
    assert assigned(books.reserve(reservation(held(window=TODAY - timedelta(days=1))))) == {"a": "acc1"}
    assert books["acc1"]["usageToday"] == 1


def test_a_reservation_whose_answer_was_lost_is_found_and_not_counted_again() -> None:
    books = Books()
    effect = reservation(*"abc", accounts=(account("acc1", 1), account("acc2", 1)))
    first = books.reserve(effect)
    again = books.reserve(effect, NOW + timedelta(seconds=3))
    assert isinstance(first, AccountsReserved)
    assert isinstance(again, AccountsReserved)
    assert again.assignments == first.assignments
    assert again.unassigned == first.unassigned
    assert (books["acc1"]["usageToday"], books["acc2"]["usageToday"]) == (1, 1)


def test_the_last_reservations_are_remembered_and_no_more() -> None:
    books = Books()
    for number in range(REMEMBERED_RESERVATIONS + 5):
        books.reserve(reservation("a", reservation_id=f"r{number}"))
    remembered = [one["id"] for one in books["acc1"]["reservations"]]
    assert remembered == [f"r{number}" for number in range(5, REMEMBERED_RESERVATIONS + 5)]


unique_accounts = st.lists(policies, min_size=1, max_size=3, unique_by=lambda one: one.id).map(tuple)


@many(200)
@given(
    accounts=unique_accounts,
    batches=st.lists(st.tuples(around_midnight, st.integers(1, 6), st.booleans()), max_size=12),
)
def test_no_interleaving_exceeds_a_limit_or_a_rate(
    accounts: tuple[AccountPolicy, ...], batches: list[tuple[datetime, int, bool]]
) -> None:
    """Reservations at any moments, repeated or not, with clocks that may go back."""
    books = Books()
    taken: dict[str, list[Any]] = {one.id: [] for one in accounts}
    for number, (now, size, twice) in enumerate(batches):
        effect = reservation(*(f"c{i}" for i in range(size)), accounts=accounts, reservation_id=f"r{number}")
        outcome = books.reserve(effect, now)
        if twice:
            again = books.reserve(effect, now)
            assert assigned(again) == assigned(outcome)
        for one in outcome.assignments if isinstance(outcome, AccountsReserved) else ():
            taken[one.account_id].append(one)
    for one in accounts:
        calls = taken[one.id]
        for window in {call.window_start for call in calls}:
            counted = sum(call.window_start == window for call in calls)
            assert one.daily_limit is None or counted <= one.daily_limit
        if one.requests_per_second:
            slots = sorted(call.slot_at for call in calls)
            gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(slots)]
            assert all(gap >= 1 / one.requests_per_second for gap in gaps)
