from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from effects import (
    CallModel,
    ModelAnswered,
    ModelRefused,
    ObjectNotStored,
    ObjectStored,
    PutObject,
    blob,
)
from interpreters.documents.memory import DocumentMemory
from interpreters.objects.memory import ObjectMemory
from interpreters.performers import Interpreter
from tests.builders import NOW
from tests.report_world import as_reply


class Clock:
    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


class Model:
    def __init__(self) -> None:
        self.asked = 0

    def ask(self, effect: CallModel) -> object:
        self.asked += 1
        return as_reply("good")


def an_interpreter(moment: datetime, objects: ObjectMemory, model: object) -> Interpreter:
    return Interpreter(documents=DocumentMemory(), objects=objects, model=model, clock=Clock(moment))  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "is_sent"), [(-1, True), (29, True), (30, False), (600, False)])
def test_a_write_that_was_held_up_for_long_is_not_sent(seconds: int, is_sent: bool) -> None:
    objects = ObjectMemory()
    put = PutObject(
        bucket="b", name="manifest.json", content=blob(b"{}"), content_type="application/json", create_only=False,
        give_up_at=NOW,
    )  # fmt: skip
    outcome = an_interpreter(NOW + timedelta(seconds=seconds), objects, Model()).perform(put)
    assert isinstance(outcome, ObjectStored if is_sent else ObjectNotStored)
    assert bool(objects.objects) is is_sent


@pytest.mark.parametrize(("seconds", "is_sent"), [(-1, True), (0, False)])
def test_a_model_is_not_asked_when_no_time_is_left(seconds: int, is_sent: bool) -> None:
    model = Model()
    call = CallModel(
        purpose="primary", model="m", mode="real", replay=False, fixture_key=None, system=blob(b"s"), user=blob(b"u"),
        images=(), generation={}, json_schema={}, timeout_seconds=10, ends_by=NOW,
    )  # fmt: skip
    outcome = an_interpreter(NOW + timedelta(seconds=seconds), ObjectMemory(), model).perform(call)
    assert isinstance(outcome, ModelAnswered if is_sent else ModelRefused)
    assert model.asked == int(is_sent)
