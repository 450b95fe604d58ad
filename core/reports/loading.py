"""What the model is shown, gathered: prompt, schema, candles, pictures, previous reports (4.12).

Owns what each must be, and the errors of all of it at once. Must not know how the model is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from returns.result import Failure, Result

from core.backoff import backoff
from core.failures import (
    GCS_READ_FAILED,
    INVALID_STEP_INPUTS,
    LLM_PROFILE_INVALID,
    PROMPT_NOT_FOUND,
    invalid,
    step_error,
)
from core.problems import Problem, Problems
from core.reports.ending import give_up_at
from core.reports.references import GcsUri, parse_uri
from core.reports.registry import OutputSchema, Prompt, parse_prompt, parse_schema
from core.reports.state import Artifact, Phase, State
from core.reports.user_input import (
    MAX_IMAGE_BYTES,
    MAX_JSON_BYTES,
    charts_of,
    image_problems,
    json_problems,
)
from effects import (
    LoadPrompt,
    LoadSchema,
    ObjectNotRead,
    ObjectRead,
    PromptLoaded,
    ReadObject,
    SchemaLoaded,
    StepError,
    Wait,
)
from effects.word import replace

HOPED_PROMPT = Prompt("", "")
HOPED_SCHEMA = OutputSchema({}, "")
_PRIORITY = (PROMPT_NOT_FOUND, LLM_PROFILE_INVALID, INVALID_STEP_INPUTS, GCS_READ_FAILED)


def load(state: State) -> State:
    """Return the state in which prompt, schema and context are being loaded, side by side."""
    assert state.step is not None
    step = state.step
    artifacts = (
        _json_artifact("candles", step.candles),
        _json_artifact("manifest", step.manifest),
        *(_json_artifact("previous", one.uri) for one in step.previous),
    )
    loading = replace(state, phase=Phase.LOADING, artifacts=artifacts, loading_since=state.now, tries=0)
    loading = loading.emit(LoadPrompt(prompt_id=step.prompt_id), LoadSchema(schema_id=step.profile.schema_id))
    return begin_reads(loading)


def _json_artifact(role: Any, uri: GcsUri) -> Artifact:
    return Artifact(role=role, uri=uri, max_bytes=MAX_JSON_BYTES)


def begin_reads(state: State) -> State:
    """Return the state in which everything unread is being read; two objects of one name are read in turn."""
    busy: set[str] = {one.uri.name for one in state.artifacts if one.tries and not one.is_settled}
    for number, one in enumerate(state.artifacts):
        if one.tries or one.uri.name in busy:
            continue
        busy.add(one.uri.name)
        state = _read(state, number)
    return state


def _read(state: State, number: int) -> State:
    one = state.artifacts[number]
    effect = ReadObject(
        bucket=one.uri.bucket,
        name=one.uri.name,
        max_bytes=one.max_bytes,
        give_up_at=give_up_at(state, state.loading_since),
    )
    return _with_artifact(state, number, replace(one, tries=one.tries + 1)).emit(effect)


def _with_artifact(state: State, number: int, artifact: Artifact) -> State:
    artifacts = (*state.artifacts[:number], artifact, *state.artifacts[number + 1 :])
    return replace(state, artifacts=artifacts)


def _reading(state: State, name: str) -> int | None:
    """Return which artifact of this name is being read."""
    return next(
        (
            number
            for number, one in enumerate(state.artifacts)
            if one.uri.name == name and one.tries and not one.is_settled
        ),
        None,
    )


def is_loaded(state: State) -> bool:
    """Return whether nothing is left to be loaded."""
    return state.is_prompt_settled and state.is_schema_settled and all(one.is_settled for one in state.artifacts)


def first_error(state: State) -> StepError | None:
    """Return one error for everything that is wrong, under the code that comes first."""
    if not state.errors:
        return None
    errors = sorted(state.errors, key=lambda one: _PRIORITY.index(one.code))
    if len(errors) == 1:
        return errors[0]
    details = {"errors": [{"code": one.code, "message": one.message} for one in errors]}
    return step_error(errors[0].code, "; ".join(one.message for one in errors), details)


def _with_error(state: State, error: StepError) -> State:
    return replace(state, errors=(*state.errors, error))


# Prompt and schema.


def on_prompt(state: State, outcome: PromptLoaded) -> State:
    """Return the state with the prompt, or with what is wrong with it."""
    assert state.step is not None
    prompt_id = state.step.prompt_id
    state = replace(state, is_prompt_settled=True)
    if outcome.content is None:
        message = f"there is no prompt {prompt_id}"
        return _with_error(state, step_error(PROMPT_NOT_FOUND, message))
    if outcome.content.data is None:
        return replace(state, prompt=HOPED_PROMPT)
    parsed = _prompt(outcome.content.data)
    if isinstance(parsed, Failure):
        subject = f"prompt {prompt_id} is not valid"
        return _with_error(state, invalid(subject, parsed.failure(), INVALID_STEP_INPUTS))
    return replace(state, prompt=parsed.unwrap())


def on_schema(state: State, outcome: SchemaLoaded) -> State:
    """Return the state with the schema, or with what is wrong with it."""
    assert state.step is not None
    schema_id = state.step.profile.schema_id
    state = replace(state, is_schema_settled=True)
    if outcome.content is None:
        return _with_error(state, step_error(LLM_PROFILE_INVALID, f"there is no schema {schema_id}"))
    if outcome.content.data is None:
        return replace(state, schema=HOPED_SCHEMA)
    parsed = _schema(schema_id, outcome.content.data)
    if isinstance(parsed, Failure):
        subject = f"schema {schema_id} is not valid"
        return _with_error(state, invalid(subject, parsed.failure(), LLM_PROFILE_INVALID))
    return replace(state, schema=parsed.unwrap())


@lru_cache(maxsize=16)
def _prompt(content: bytes) -> Result[Prompt, Problems]:
    return parse_prompt(json.loads(content or b"null"))


@lru_cache(maxsize=16)
def _schema(schema_id: str, content: bytes) -> Result[OutputSchema, Problems]:
    """Return the schema; few are in use, and checking one takes long."""
    return parse_schema(schema_id, json.loads(content or b"null"))


# Artifacts.


def on_read(state: State, outcome: ObjectRead) -> State:
    """Return the state with an artifact, or with what is wrong with it."""
    number = _reading(state, outcome.name)
    if number is None:
        return state
    one = state.artifacts[number]
    state = _with_artifact(state, number, replace(one, is_settled=True, content=outcome.content))
    if outcome.content.data is None:
        return state
    if one.role == "manifest":
        return _on_manifest(state, outcome.content.data, str(one.uri))
    check = image_problems if one.role == "image" else json_problems
    return _with_problems(state, check(outcome.content.data, str(one.uri)))


def _on_manifest(state: State, content: bytes, where: str) -> State:
    """Return the state in which the manifest's pictures are artifacts too."""
    charts, problems = charts_of(content, where)
    parsed: list[Result[GcsUri, Problems]] = [parse_uri(one.uri, where) for one in charts]
    wrong = tuple(found for one in parsed if isinstance(one, Failure) for found in one.failure())
    if problems or wrong:
        return _with_problems(state, (*problems, *wrong))
    images = tuple(Artifact(role="image", uri=one.unwrap(), max_bytes=MAX_IMAGE_BYTES) for one in parsed)
    return replace(state, charts=charts, artifacts=(*state.artifacts, *images))


def _with_problems(state: State, problems: Problems) -> State:
    if not problems:
        return state
    return _with_error(state, invalid("the context cannot be used", problems, INVALID_STEP_INPUTS))


def on_not_read(state: State, outcome: ObjectNotRead) -> State:
    """Return the state in which the artifact is tried again after a pause, or is an error."""
    number = _reading(state, outcome.name)
    if number is None:
        return state
    one = state.artifacts[number]
    if outcome.reason == "failed":
        again_at = state.now + backoff(one.tries, state.inputs.flow_run_path, state.step_id, outcome.name)
        if again_at < give_up_at(state, state.loading_since):
            return _pause(state, number, again_at)
        message = f"{one.uri} could not be read: {outcome.message}"
        return _settled(state, number, step_error(GCS_READ_FAILED, message))
    said = {
        "missing": "does not exist",
        "too_large": f"has more than {one.max_bytes:,} bytes",
    }[outcome.reason]
    problems = (Problem(str(one.uri), said),)
    return _settled(state, number, invalid("the context cannot be used", problems, INVALID_STEP_INPUTS))


def _settled(state: State, number: int, error: StepError) -> State:
    artifact = replace(state.artifacts[number], is_settled=True)
    return _with_error(_with_artifact(state, number, artifact), error)


def _pause(state: State, number: int, until: Any) -> State:
    """Return the state in which the artifact is read again when a wait is over; one wait serves all."""
    state = replace(state, retrying=(*state.retrying, number))
    if state.is_waiting:
        return state
    return replace(state, is_waiting=True).emit(Wait(until=until, reason="recall", chart_template_id=None))


def on_waited(state: State) -> State:
    """Return the state in which what failed is being read again."""
    retrying = state.retrying
    state = replace(state, is_waiting=False, retrying=())
    for number in retrying:
        state = _read(state, number)
    return state


def shown_artifacts(state: State) -> Mapping[str, tuple[bytes, ...]] | None:
    """Return the bytes of everything shown, by role; None where some of it is only hoped for."""
    blobs = [one.content for one in state.artifacts]
    if any(one is None or one.data is None for one in blobs):
        return None
    roles = ("candles", "previous", "image")
    return {
        role: tuple(one.content.data or b"" for one in state.artifacts if one.role == role and one.content)
        for role in roles
    }
