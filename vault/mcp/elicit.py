"""What a server may ask a person, in the middle of a call: little, and never a secret. Pure.

A result of 2026-07-28 may ask for input. Where the grant has it, questions go on to the brain, for
a person to see who asks; the model, folders and whatever else are never given. The state that the
server wants back goes with a mark over all that it belongs to, so that it is of no use elsewhere.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from vault.mcp.jsonrpc import Json, Malformed, parsed
from vault.mcp.refusals import Refusal, Why

STATE_MAX = 64 * 1024
QUESTIONS_MAX, FIELDS_MAX, TURNS_MAX = 8, 32, 10
_TEXT_MAX = 4096
_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_SECRET = re.compile(
    r"passw|passphrase|secret|token|api.?key|credential|private.?key|otp|\bpin\b|cvv|ssn|card.?num",
    re.IGNORECASE,
)
"""A field that asks for what belongs in no session's log."""
_KINDS = ("string", "number", "integer", "boolean")
_ACTIONS = ("accept", "decline", "cancel")


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions of a server."""

    questions: Mapping[str, Json]
    state: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """What a person said to them."""

    turn: int
    """The how manieth sending of the call this is, from 1."""
    params: Json
    """To be sent beside the call's own."""


def asked(result: Mapping[str, Any]) -> Asked:
    """The questions in a result. Raises INPUT_REFUSED for any that may not be asked."""
    found, state = result.get("inputRequests") or {}, result.get("requestState")
    _must(isinstance(found, dict) and 0 < len(found) <= QUESTIONS_MAX, "questions")
    _must(state is None or (isinstance(state, str) and len(state) <= STATE_MAX), "state")
    return Asked({key: _question(key, said) for key, said in found.items()}, state)


def put(asked: Asked, turn: int, key: bytes, about: bytes) -> Json:
    """The result that a brain gets; `about` is what the questions belong to."""
    inner = {"keys": sorted(asked.questions), "state": asked.state, "turn": turn}
    data = json.dumps(inner, separators=(",", ":")).encode()
    state = base64.urlsafe_b64encode(_mark(key, about, data) + data).decode("ascii")
    return {
        "resultType": "input_required",
        "inputRequests": dict(asked.questions),
        "requestState": state,
    }


def answered(params: Mapping[str, Any], key: bytes, about: bytes) -> Answered | None:
    """What a brain sends back; None when it answers nothing. Raises PARAMS_INVALID."""
    state, given = params.get("requestState"), params.get("inputResponses")
    if state is None and given is None:
        return None
    try:
        whole = base64.b64decode(str(state), b"-_", validate=True)
        mark, data = whole[:32], whole[32:]
        if not hmac.compare_digest(mark, _mark(key, about, data)):
            raise Malformed
        inner = parsed(data)
    except (binascii.Error, ValueError, Malformed):
        raise Refusal(Why.PARAMS_INVALID) from None
    if not isinstance(given, dict) or sorted(given) != inner["keys"] or inner["turn"] >= TURNS_MAX:
        raise Refusal(Why.PARAMS_INVALID)
    more: Json = {"inputResponses": {name: _answer(said) for name, said in given.items()}}
    if inner["state"] is not None:
        more["requestState"] = inner["state"]
    return Answered(inner["turn"] + 1, more)


def _question(key: str, said: Any) -> Json:
    _must(_KEY.fullmatch(key) is not None and isinstance(said, dict), "a question's name")
    _must(said.get("method") == "elicitation/create", "not a question to a person")
    params = said.get("params")
    _must(isinstance(params, dict), "no parameters")
    message = params.get("message", "")
    _must(isinstance(message, str) and len(message) <= _TEXT_MAX, "its text")
    kind = params.get("mode", "form")
    if kind == "url":
        asked = {"mode": "url", "message": message, "url": _url(params.get("url"))}
        if isinstance(params.get("elicitationId"), str):
            asked["elicitationId"] = params["elicitationId"][:256]
    else:
        _must(kind == "form", "its mode")
        schema = _schema(params.get("requestedSchema"))
        asked = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": asked}


def _url(value: Any) -> str:
    """Shown to a person as text, and fetched by nobody here."""
    _must(isinstance(value, str) and len(value) <= _TEXT_MAX, "its address")
    _must(re.fullmatch(r"https://[\x21-\x7e]+", value) is not None, "its address")
    try:
        parts = urlsplit(value)
    except ValueError:
        raise Refusal(Why.INPUT_REFUSED, "its address") from None
    _must(bool(parts.hostname) and "@" not in parts.netloc and "\\" not in value, "its address")
    return str(value)


def _schema(value: Any) -> Json:
    _must(isinstance(value, dict) and value.get("type") == "object", "its form")
    fields = value.get("properties", {})
    _must(isinstance(fields, dict) and len(fields) <= FIELDS_MAX, "its fields")
    for name, field in fields.items():
        _must(isinstance(field, dict) and field.get("type") in (*_KINDS, "array"), "a field")
        words = [name, *(str(field.get(key, "")) for key in ("title", "description", "format"))]
        _must(not any(map(_SECRET.search, words)), "a secret")
    return {key: value[key] for key in ("type", "properties", "required") if key in value}


def _answer(said: Any) -> Json:
    good = isinstance(said, dict) and said.get("action") in _ACTIONS
    content = said.get("content") if good else None
    if not good or not (content is None or isinstance(content, dict)):
        raise Refusal(Why.PARAMS_INVALID)
    return {"action": said["action"], **({"content": content} if content is not None else {})}


def _must(good: bool, what: str) -> None:
    if not good:
        raise Refusal(Why.INPUT_REFUSED, what)


def _mark(key: bytes, about: bytes, data: bytes) -> bytes:
    parts = len(about).to_bytes(8, "big") + about + data
    return hmac.new(key, b"carpal/v1/mcp-input\0" + parts, hashlib.sha256).digest()
