from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects import (
    HOPED_BLOB,
    AccountPolicy,
    Blob,
    CallChartApi,
    CallModel,
    Effect,
    EffectFailed,
    FieldChange,
    FlowRunsFound,
    Outcome,
    StepError,
    TemplatesLoaded,
    blob,
)
from effects.encoding import decode_effect, decode_outcome, encode_effect, encode_outcome
from effects.moments import floor_second, parse_moment, rfc3339, utc_day
from tests.strategies import documents, json_values, moments, policies

st.register_type_strategy(datetime, moments)
blobs = st.binary(max_size=20).map(blob) | st.just(HOPED_BLOB)
st.register_type_strategy(Blob, blobs)
st.register_type_strategy(AccountPolicy, policies)
st.register_type_strategy(
    StepError, st.builds(StepError, code=st.text(), message=st.text(), details=st.none() | documents)
)
st.register_type_strategy(
    FieldChange,
    st.builds(
        FieldChange,
        path=st.lists(st.text(), min_size=1, max_size=4).map(tuple),
        before=json_values,
        after=json_values,
        why=st.text(),
    ),
)


def words(kind: type) -> st.SearchStrategy[Any]:
    fields: dict[str, Any] = {
        name: documents
        for name in ("flow_run", "outputs", "execution", "body", "generation", "json_schema")
        if "Mapping" in str(kind.__annotations__.get(name, "")) or kind.__annotations__.get(name) == "Document"
    }
    if kind is TemplatesLoaded:
        fields["templates"] = st.dictionaries(st.text(), documents, max_size=2)
    if kind is FlowRunsFound:
        fields["flow_runs"] = st.dictionaries(st.text(), documents, max_size=2)
    if kind in {CallChartApi, CallModel}:
        fields["timeout_seconds"] = st.floats(0, 600)
    if kind is EffectFailed:
        fields["effect"] = st.sampled_from(get_args(Effect)).flatmap(words)
    return st.builds(kind, **fields)


def seen(word: Any) -> Any:
    """Return the word as it is after a journey: pictures without their bytes."""
    changes: dict[str, Any] = {
        name: _seen_blob(value)
        for name in word.__dataclass_fields__
        if isinstance(value := getattr(word, name), Blob)
    }
    if isinstance(word, CallModel):
        changes["images"] = tuple(map(_seen_blob, word.images))
    if isinstance(word, EffectFailed):
        changes["effect"] = seen(word.effect)
    fields = {name: getattr(word, name) for name in word.__dataclass_fields__}
    return type(word)(**{**fields, **changes})


def _seen_blob(content: Blob) -> Blob:
    return Blob(data=None, size=content.size, known_sha256=content.sha256)


@pytest.mark.parametrize("kind", get_args(Effect), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_effect_survives_json(kind: type, data: st.DataObject) -> None:
    word = data.draw(words(kind))
    encoded = json.loads(json.dumps(encode_effect(word)))
    assert encoded["effect"] == kind.__name__
    assert decode_effect(encoded) == seen(word)


@pytest.mark.parametrize("kind", get_args(Outcome), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_outcome_survives_json(kind: type, data: st.DataObject) -> None:
    word = data.draw(words(kind))
    encoded = json.loads(json.dumps(encode_outcome(word)))
    assert encoded["outcome"] == kind.__name__
    assert decode_outcome(encoded) == seen(word)


def test_bytes_are_shown_as_size_and_hash_only() -> None:
    content = blob(b"picture")
    assert repr(content) == "Blob(size=7)"
    assert content.sha256 == hashlib.sha256(b"picture").hexdigest()
    assert HOPED_BLOB.sha256 is None


@given(moment=moments)
def test_a_moment_survives_text(moment: datetime) -> None:
    assert parse_moment(rfc3339(moment)) == moment
    assert rfc3339(moment).endswith("Z")
    assert floor_second(moment).microsecond == 0
    assert utc_day(moment) <= moment


@pytest.mark.parametrize(
    "value", ["", "2025-12-15", "2025-12-15T10:00:00", None, 7, "0001-01-01T00:00:00+14:00", []]
)
def test_what_is_no_moment_is_none(value: object) -> None:
    assert parse_moment(value) is None


def test_a_moment_can_come_as_a_datetime() -> None:
    assert parse_moment(datetime(2025, 1, 1, tzinfo=UTC)) == datetime(2025, 1, 1, tzinfo=UTC)
