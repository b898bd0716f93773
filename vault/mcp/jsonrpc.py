"""JSON-RPC messages, read strictly: what two readers could read as two things is refused. Pure.

A message is taken apart here and put together anew by whoever sends it on, so nothing that was not
understood is ever passed.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

Id = str | int
Json = dict[str, Any]

DEPTH_MAX = 64
_ID_MAX = 128
_WHOLE = 2**53
_METHOD = re.compile(r"[a-zA-Z][a-zA-Z0-9_/]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_REQUEST = frozenset({"jsonrpc", "id", "method", "params"})
_REPLY = frozenset({"jsonrpc", "id", "result", "error"})


class Malformed(Exception):
    """It is no message; `str` says why, in words that hold nothing of it."""


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody asks, and waits for a reply."""

    id: Id
    method: str
    params: Json


@dataclass(frozen=True, slots=True)
class Notification:
    """Somebody says something."""

    method: str
    params: Json


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request; `id` is None where the request was not understood."""

    id: Id | None
    result: Json | None
    error: Json | None


Message = Request | Notification | Reply


def message(data: bytes, *, strict: bool = True) -> Message:
    """The one message in `data`. Raises Malformed.

    With `strict` also for names beside those that a message has; else those are left out.
    """
    value = parsed(data)
    if not isinstance(value, dict):
        raise Malformed("it is no object: batches are not taken")
    known = _REQUEST if "method" in value else _REPLY
    if strict and not known.issuperset(value):
        raise Malformed("it has names that no message has")
    if value.get("jsonrpc") != "2.0":
        raise Malformed("it is not JSON-RPC 2.0")
    return _asked(value) if "method" in value else _reply(value)


def written(value: Json) -> bytes:
    """A message as bytes: ASCII, so that no reader can take its text for anything else."""
    return json.dumps({"jsonrpc": "2.0", **value}, separators=(",", ":")).encode("ascii")


def parsed(data: bytes) -> Any:
    """JSON in UTF-8 of bounded depth, without names twice. Raises Malformed."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except Malformed:
        raise
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8") from None
    except (ValueError, RecursionError):  # its words would hold a part of it
        raise Malformed("it is no JSON") from None
    _check(value)
    return value


def _asked(value: Json) -> Request | Notification:
    method, params = value["method"], value.get("params", {})
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise Malformed("its method is none")
    if not isinstance(params, dict):
        raise Malformed("its params are no object")
    _plain_names(params)
    if "id" not in value:
        return Notification(method, params)
    return Request(_id(value["id"]), method, params)


def _reply(value: Json) -> Reply:
    result, error = value.get("result"), value.get("error")
    if ("result" in value) == ("error" in value):
        raise Malformed("it is neither a request nor a reply")
    if not isinstance(error if "error" in value else result, dict):
        raise Malformed("its result is no object")
    if error is not None and type(error.get("code")) is not int:
        raise Malformed("its error has no code")
    found = value.get("id")
    return Reply(None if found is None else _id(found), result, error)


def _id(value: Any) -> Id:
    if isinstance(value, str) and 0 < len(value) <= _ID_MAX and value.isprintable():
        return value
    if type(value) is int and abs(value) <= _WHOLE:
        return value
    raise Malformed("its id is none")


def _plain_names(params: Json) -> None:
    """Of what we read ourselves, no name may be another in other letters."""
    if len({name.casefold() for name in params}) < len(params):
        raise Malformed("it has a name twice, in other letters")


def _object(pairs: list[tuple[str, Any]]) -> Json:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Malformed("it has a name twice")
    if any(map(_CONTROL.search, made)):
        raise Malformed("a name has control characters")
    return made


def _no_constant(name: str) -> NoReturn:
    raise Malformed("it has numbers that are none")


def _check(value: Any) -> None:
    """Bound its depth, and refuse text that no UTF-8 can hold."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, str):
                _text(each)
            elif isinstance(each, dict):
                for name in each:
                    _text(name)
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, float) and not math.isfinite(each):
                raise Malformed("it has numbers that are none")
        if not inner:
            return
        level = inner
    raise Malformed("it is nested too deep")


def _text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise Malformed("a text is none") from None
