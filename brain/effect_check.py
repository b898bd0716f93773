"""Whether what a harness yields can be performed at all: checked before anything is. Pure.

A harness is somebody's code, and what it asks for becomes part of a log for good: a
position that is none, or an amount that no budget can count, would stand there and
be read by every driver after this one.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, get_args

from brain.budget import reservation
from brain.effects import (
    CallModel,
    Effect,
    Emit,
    Execute,
    Finish,
    HarnessType,
    Json,
    Provision,
    Purpose,
    ReadEvents,
    Sleep,
)
from brain.session.entries import COMPACTED, Entry
from brain.session.eviction import read_window
from brain.session.transcript import Transcript
from carpal.errors import CarpalError
from carpal.json_in import plain_object, read_object
from carpal.layers import Layer

ERROR = "session.error"
SLEEP_MAX = 86_400.0
"""Seconds of one wait: its session is held all the while."""
DETAILS_MAX = 64 * 1024
"""Bytes of what an end says beside its stop reason."""
_EVENT_MAX = 1024 * 1024
"""Bytes of an event's data, as the log has it."""
_REQUEST_MAX = 256 * 1024 * 1024
"""Bytes of a request: more than any service takes."""
_TEXT_MAX = 128
_TOKENS_MAX = 2**31 - 1
_POSITION_MAX = 2**63 - 1
_READ_MAX = 1_000
_TYPES_MAX = 100
_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_NOT_ITS_OWN = ("user", "agent", "session", "span", "hand", "system")
"""First words of types that are for people, hands, models and brains to write."""


class Wrong(ValueError):
    """What is wrong, beginning with the effect and its field."""


def check(effect: Effect, transcript: Transcript) -> None:
    """`Wrong` for an effect that cannot be performed over this transcript."""
    match effect:
        case CallModel():
            _call_model(effect, transcript.head)
        case Provision():
            _text("Provision.hand", effect.hand)
            if effect.hand not in transcript.hand_specs:
                raise Wrong(f"Provision.hand: the agent names no hand {effect.hand!r}")
        case Execute():
            _execute(effect, transcript)
        case ReadEvents():
            _whole("ReadEvents.after", effect.after, 0, _POSITION_MAX)
            _whole("ReadEvents.before", effect.before, 0, _POSITION_MAX)
            _whole("ReadEvents.limit", effect.limit, 1, _READ_MAX)
            for each in _texts("ReadEvents.types", effect.types, _TYPES_MAX):
                if not _TYPE.fullmatch(each.removesuffix(".*")):
                    raise Wrong(f"ReadEvents.types: {each!r} is no type")
        case Emit():
            _emit(effect, transcript)
        case Sleep():
            _number("Sleep.seconds", effect.seconds, SLEEP_MAX)
        case Finish():
            _finish(effect, transcript.head)


def as_appended(effect: Emit) -> Json:
    """What a harness emits, as it is in the log: an error that names no layer is its own."""
    error = effect.data.get("error") if effect.type == ERROR else None
    if not isinstance(error, dict):
        return effect.data
    return {**effect.data, "error": {"layer": str(Layer.HARNESS), **error}}


def check_type(kind: HarnessType) -> None:
    """`Wrong` for what an entry point names and cannot drive."""
    _text("version", kind.version)
    if not callable(kind.start):
        raise Wrong("start: must be a function")
    _number("wait_limit", kind.wait_limit, SLEEP_MAX)


def _call_model(effect: CallModel, head: int) -> None:
    request = _object("CallModel.request", effect.request, _REQUEST_MAX)
    _text("CallModel.request: model", request.get("model"))
    if request.get("max_tokens") is not None:
        _whole("CallModel.request: max_tokens", request["max_tokens"], 1, _TOKENS_MAX)
    try:
        reservation(request, 0)
    except (AttributeError, TypeError, ValueError) as error:
        raise Wrong(f"CallModel.request: messages are none: {error}") from None
    _text("CallModel.policy", effect.policy)
    _whole("CallModel.through", effect.through, 0, head)
    _whole("CallModel.covers", effect.covers, 0, head)
    if effect.purpose not in get_args(Purpose):
        raise Wrong(f"CallModel.purpose: must be one of {', '.join(get_args(Purpose))}")
    for field, value in (("provider", effect.provider), ("calls_prefix", effect.calls_prefix)):
        _text(f"CallModel.{field}", value, least=0)


def _execute(effect: Execute, transcript: Transcript) -> None:
    for call_id in _texts("Execute.call_ids", effect.call_ids):
        if call_id not in transcript.calls:
            raise Wrong(f"Execute.call_ids: the log has no call {call_id!r}")


def _emit(effect: Emit, transcript: Transcript) -> None:
    _text("Emit.type", effect.type)
    if not _TYPE.fullmatch(effect.type):
        raise Wrong(f"Emit.type: {effect.type!r} is no type")
    data = _object("Emit.data", effect.data, _EVENT_MAX)
    if effect.type == COMPACTED:
        try:
            read_window(Entry(transcript.head + 1, "", COMPACTED, data), transcript)
        except (KeyError, TypeError, ValueError) as error:
            raise Wrong(f"Emit.data: {error}") from None
    elif effect.type == ERROR:
        _error(data, transcript.head)
    elif effect.type.partition(".")[0] in _NOT_ITS_OWN:
        raise Wrong(f"Emit.type: {effect.type} is not for a harness to write")


def _error(data: Json, head: int) -> None:
    error = data.get("error")
    if not isinstance(error, dict):
        raise Wrong("Emit.data: error must be an object")
    _text("Emit.data: error.type", error.get("type"))
    if not isinstance(error.get("message"), str):
        raise Wrong("Emit.data: error.message must be a text")
    if not isinstance(error.get("retry_status", {}), dict):
        raise Wrong("Emit.data: error.retry_status must be an object")
    if "layer" in error and error["layer"] not in list(Layer):
        raise Wrong(f"Emit.data: error.layer must be one of {', '.join(Layer)}")
    if "through" in data:
        _whole("Emit.data: through", data["through"], 0, head)
    if "passed_over" in data:
        raise Wrong("Emit.data: passed_over is not for a harness to write")


def _finish(effect: Finish, head: int) -> None:
    _text("Finish.stop_reason", effect.stop_reason)
    if effect.through is not None:
        _whole("Finish.through", effect.through, 0, head)
    if effect.details is not None:
        _object("Finish.details", effect.details, DETAILS_MAX)
    if not isinstance(effect.settled, bool):
        raise Wrong("Finish.settled: must be True or False")
    if not isinstance(effect.reason_more, Mapping):
        raise Wrong("Finish.reason_more: must be an object")
    more = _object("Finish.reason_more", dict(effect.reason_more), DETAILS_MAX)
    if "type" in more:
        raise Wrong("Finish.reason_more: its `type` is the stop reason, and is said there")


def _object(field: str, value: Any, size: int) -> Json:
    """A JSON object, as any reader of JSON has it."""
    if not isinstance(value, dict):
        raise Wrong(f"{field}: must be a dict, and is a {type(value).__name__}")
    try:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
        if plain_object(data := text.encode(), size=size) is None:
            read_object(data, field, size=size)
    except CarpalError as error:
        raise Wrong(error.message) from None
    except RecursionError:
        raise Wrong(f"{field}: is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise Wrong(f"{field}: is not JSON: {str(error)[:200]}") from None
    checked: Json = value
    return checked


def _text(field: str, value: Any, *, least: int = 1) -> str:
    if not isinstance(value, str) or not least <= len(value) <= _TEXT_MAX:
        raise Wrong(f"{field}: must be a text of {least} to {_TEXT_MAX} characters")
    if not value.isprintable():
        raise Wrong(f"{field}: {value!r} has characters that cannot be printed")
    return value


def _texts(field: str, value: Any, most: int = 100_000) -> tuple[str, ...]:
    if not isinstance(value, tuple | list) or len(value) > most:
        raise Wrong(f"{field}: must be a tuple of texts, and is a {type(value).__name__}")
    return tuple(_text(field, each) for each in value)


def _whole(field: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise Wrong(f"{field}: must be a whole number from {least} to {most}")


def _number(field: str, value: Any, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"{field}: must be a number of seconds")
    if not math.isfinite(value) or not 0 <= value <= most:
        raise Wrong(f"{field}: must be 0 to {most:g} seconds")
