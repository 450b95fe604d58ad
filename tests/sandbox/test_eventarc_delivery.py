"""Event delivery, to services that read events with Google's own types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Barrier, Lock
from typing import Any
from urllib.parse import unquote

import pytest
from cloudevents.http import CloudEvent, from_http
from google.cloud.firestore_v1.types import Document
from google.events.cloud.firestore_v1 import DocumentEventData

from interpreters.sandbox.eventarc import (
    CREATED,
    DELETED,
    MAX_PAYLOAD_BYTES,
    UPDATED,
    WRITTEN,
    Chances,
    Eventarc,
    Retries,
)
from interpreters.sandbox.firestore.changes import change_between
from interpreters.sandbox.http_server import Dropped, HttpServer, Reply, Request

RUN = "20251215-102530_BTCUSDT_k3f7a"
AT = datetime(2025, 12, 15, 10, 25, 30, 123456, tzinfo=UTC)
QUICK = Retries(first_seconds=0.01, most_seconds=0.05)


@dataclass
class Changed:
    """A change as a database tells of it."""

    name: str
    old: Any
    new: Any
    update_mask: tuple[str, ...] = ()
    commit_time: datetime | int = AT


def a_name(document_id: str = RUN, collection: str = "flow_runs") -> str:
    return f"projects/p/databases/(default)/documents/{collection}/{document_id}"


def a_document(status: str = "RUNNING", document_id: str = RUN) -> Document:
    return Document(name=a_name(document_id), fields={"status": {"string_value": status}}, update_time=AT)


def an_update(document_id: str = RUN) -> Changed:
    old, new = a_document("PENDING", document_id), a_document("RUNNING", document_id)
    return Changed(a_name(document_id), old, new, ("status", "steps.`charts:1M`.status"))


@dataclass
class Service(HttpServer):
    """A service that notes what it is sent, and answers as it is told."""

    answer: Callable[[int], Reply | Dropped] = lambda number: Reply(204)
    events: list[CloudEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = Lock()
        super().__init__(self._take)

    def _take(self, request: Request) -> Reply | Dropped:
        event = from_http(dict(request.headers.items()), request.body)
        with self._lock:
            self.events.append(event)
            number = len(self.events)
        return self.answer(number)

    @property
    def subjects(self) -> list[str]:
        return [event["subject"].rpartition("/")[2] for event in self.events]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as one:
        yield one


def delivered(eventarc: Eventarc) -> dict[str, int]:
    assert eventarc.drain(10)
    return {name: count for name, count in eventarc.counts.items() if count}


class TestEvents:
    def test_an_update_arrives_with_both_documents_and_the_mask(self, service: Service) -> None:
        with Eventarc("p") as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(an_update())
            assert delivered(eventarc) == {"published": 1, "delivered": 1}
        (event,) = service.events
        data = DocumentEventData.deserialize(event.data)
        assert data.value.fields["status"].string_value == "RUNNING"
        assert data.value.name == a_name()
        assert data.old_value.fields["status"].string_value == "PENDING"
        assert list(data.update_mask.field_paths) == ["status", "steps.`charts:1M`.status"]

    def test_the_headers_are_those_of_eventarc(self, service: Service) -> None:
        with Eventarc("p", location="eur3") as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(an_update())
            assert eventarc.drain(10)
        attributes = dict(service.events[0].get_attributes())
        assert attributes.pop("id")
        assert attributes.pop("dataschema").endswith("/firestore/v1/data.proto")
        assert attributes == {
            "source": "//firestore.googleapis.com/projects/p/databases/(default)",
            "specversion": "1.0",
            "type": WRITTEN,
            "subject": f"documents/flow_runs/{RUN}",
            "time": "2025-12-15T10:25:30.123456Z",
            "datacontenttype": "application/protobuf",
            "project": "p",
            "database": "(default)",
            "namespace": "(default)",
            "location": "eur3",
            "document": f"flow_runs/{RUN}",
        }

    def test_the_time_may_be_given_in_microseconds(self, service: Service) -> None:
        change = an_update()
        change.commit_time = int(AT.timestamp()) * 1_000_000 + 123456
        with Eventarc("p") as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(change)
            assert eventarc.drain(10)
        assert service.events[0]["time"] == "2025-12-15T10:25:30.123456Z"

    def test_documents_may_be_plain_protobuf(self, service: Service) -> None:
        with Eventarc("p") as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(Changed(a_name(), None, Document.pb(a_document())))
            assert eventarc.drain(10)
        data = DocumentEventData.deserialize(service.events[0].data)
        assert data.value.fields["status"].string_value == "RUNNING"
        assert ("old_value" in data, "update_mask" in data) == (False, False)

    def test_a_change_in_the_sandboxs_firestore_arrives(self, service: Service) -> None:
        old, new = (Document.pb(a_document(status)) for status in ("PENDING", "RUNNING"))
        with Eventarc("p") as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(change_between(a_name(), old, new, 1_765_794_330_123_456))
            assert eventarc.drain(10)
        (event,) = service.events
        assert event["time"] == "2025-12-15T10:25:30.123456Z"
        assert list(DocumentEventData.deserialize(event.data).update_mask.field_paths) == ["status"]

    def test_a_service_hears_of_the_types_it_asked_for(self, service: Service) -> None:
        changes = [
            Changed(a_name("created"), None, a_document()),
            Changed(a_name("updated"), a_document(), a_document()),
            Changed(a_name("deleted"), a_document(), None),
        ]
        with Eventarc("p", parallel=1) as eventarc:
            eventarc.subscribe(service.address, event_types={CREATED})
            eventarc.subscribe(service.address, event_types={UPDATED, DELETED})
            eventarc.subscribe(service.address, event_types={UPDATED + ".withAuthContext"})
            for change in changes:
                eventarc.publish(change)
            assert eventarc.drain(10)
        assert sorted((event["type"].split(".v1.")[1], event["document"][10:]) for event in service.events) == [
            ("created", "created"),
            ("deleted", "deleted"),
            ("updated", "updated"),
            ("updated.withAuthContext", "updated"),
        ]
        assert "value" not in DocumentEventData.deserialize(service.events[-1].data)

    def test_a_service_hears_of_its_collection_only(self, service: Service) -> None:
        with Eventarc("p", parallel=1) as eventarc:
            eventarc.subscribe(service.address)
            for collection in ("chart_templates", "flow_runs", "flow_runs/x/steps"):
                eventarc.publish(Changed(a_name("one", collection), None, a_document()))
            assert delivered(eventarc) == {"published": 1, "delivered": 1}
            eventarc.subscribe(service.address, collection=None)
            eventarc.publish(Changed(a_name("one", "chart_templates"), None, a_document()))
            assert delivered(eventarc) == {"published": 2, "delivered": 2}

    def test_a_name_beyond_ascii_is_quoted(self, service: Service) -> None:
        with Eventarc("p") as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(Changed(a_name("größe 100%"), None, a_document()))
            assert eventarc.drain(10)
        assert service.events[0]["subject"] == "documents/flow_runs/gr%C3%B6%C3%9Fe%20100%25"
        assert unquote(service.subjects[0]) == "größe 100%"

    def test_a_large_document_does_not_come_along(self, service: Service) -> None:
        large = a_document("x" * MAX_PAYLOAD_BYTES)
        with Eventarc("p") as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(Changed(a_name(), a_document(), large, ("status",)))
            assert eventarc.drain(10)
        data = DocumentEventData.deserialize(service.events[0].data)
        assert ("value" in data, "old_value" in data) == (False, False)
        assert list(data.update_mask.field_paths) == ["status"]


class TestRetries:
    def test_an_event_comes_again_until_it_is_taken(self, service: Service) -> None:
        service.answer = lambda number: [Reply(500), Dropped(), Dropped(reset=True), Reply(204)][number - 1]
        with Eventarc("p", retries=QUICK) as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(an_update())
            assert delivered(eventarc) == {"published": 1, "delivered": 1, "retried": 3}
        assert len({event["id"] for event in service.events}) == 1

    def test_the_pauses_grow_up_to_a_limit(self) -> None:
        retries = Retries(first_seconds=0.1, most_seconds=1.0)
        assert [retries.pause(tries) for tries in (1, 2, 3, 4, 5, 900)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]

    @pytest.mark.parametrize(
        "retries",
        [Retries(first_seconds=0.01, tries=3), Retries(first_seconds=0.01, most_seconds=0.01, age_seconds=0.025)],
    )
    def test_an_event_is_given_up_in_the_end(self, service: Service, retries: Retries) -> None:
        service.answer = lambda number: Reply(503)
        with Eventarc("p", retries=retries) as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(an_update())
            assert delivered(eventarc)["given_up"] == 1
        assert 1 <= len(service.events) <= 3

    def test_no_answer_in_time_is_a_no(self, service: Service) -> None:
        def late(number: int) -> Reply:
            service.pause(1.0 if number == 1 else 0)
            return Reply(204)

        service.answer = late
        with Eventarc("p", retries=QUICK, answer_seconds=0.2) as eventarc:
            eventarc.subscribe(service.address)
            eventarc.publish(an_update())
            counts = delivered(eventarc)
        assert (counts["delivered"], counts["retried"] >= 1) == (1, True)

    def test_a_service_that_comes_back_elsewhere_gets_what_it_missed(self, service: Service) -> None:
        gone = Service()
        gone.stop()
        with Eventarc("p", retries=QUICK) as eventarc:
            subscription = eventarc.subscribe(gone.address)
            eventarc.publish(an_update())
            assert not eventarc.drain(0.05)
            subscription.url = service.address
            assert eventarc.drain(10)
        assert service.subjects == [RUN]

    def test_a_service_that_left_gets_nothing_more(self, service: Service) -> None:
        service.answer = lambda number: Reply(500)
        with Eventarc("p", retries=QUICK) as eventarc:
            subscription = eventarc.subscribe(service.address)
            eventarc.publish(an_update())
            eventarc.unsubscribe(subscription)
            assert eventarc.drain(10)
            eventarc.publish(an_update())
            assert eventarc.drain(0)


class TestChance:
    IDS = tuple(f"run{number:02}" for number in range(30))

    def order(self, seed: int, chances: Chances) -> tuple[list[str], dict[str, int]]:
        with Service() as service, Eventarc("p", seed=seed, parallel=1, chances=chances) as eventarc:
            eventarc.subscribe(service.address)
            for one in self.IDS:
                eventarc.publish(an_update(one))
            counts = delivered(eventarc)
            return service.subjects, counts

    def test_without_chance_events_come_once_and_in_order(self) -> None:
        assert self.order(1, Chances()) == (list(self.IDS), {"published": 30, "delivered": 30})

    def test_some_events_come_twice_under_one_id(self, service: Service) -> None:
        with Eventarc("p", seed=1, chances=Chances(duplicate=0.5)) as eventarc:
            eventarc.subscribe(service.address)
            for one in self.IDS:
                eventarc.publish(an_update(one))
            counts = delivered(eventarc)
        ids = Counter(event["id"] for event in service.events)
        assert (len(ids), set(ids.values())) == (30, {1, 2})
        assert counts["delivered"] == 30 + counts["duplicated"]

    def test_some_events_pass_others(self) -> None:
        subjects, counts = self.order(1, Chances(reorder=0.5, held_seconds=0.2))
        assert sorted(subjects) == list(self.IDS)
        assert subjects != list(self.IDS)
        assert 0 < counts["held_back"] < 30

    def test_the_seed_decides(self) -> None:
        chances = Chances(duplicate=0.3, reorder=0.3, held_seconds=0.05)
        one, same, other = (self.order(seed, chances) for seed in (7, 7, 8))
        assert (one[1], sorted(one[0])) == (same[1], sorted(same[0]))
        assert sorted(one[0]) != sorted(other[0])

    def test_deliveries_go_side_by_side(self, service: Service) -> None:
        all_there = Barrier(4)

        def together(number: int) -> Reply:
            all_there.wait(5)
            return Reply(200)

        service.answer = together
        with Eventarc("p", parallel=4) as eventarc:
            eventarc.subscribe(service.address)
            for one in self.IDS[:4]:
                eventarc.publish(an_update(one))
            assert delivered(eventarc) == {"published": 4, "delivered": 4}
