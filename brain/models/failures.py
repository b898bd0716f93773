"""How a model call fails, by kind, and what may be done about it. Pure.

docs/reference/models.md has the table.
"""

import re
from dataclasses import replace
from typing import Any

from brain.effects import Failed
from brain.models import features, media
from brain.session import model_kinds as kinds

Json = dict[str, Any]

_BY_STATUS: dict[int, tuple[str, bool]] = {
    401: (kinds.AUTHENTICATION, False),
    402: (kinds.BILLING, False),
    403: (kinds.PERMISSION, False),
    404: (kinds.NOT_FOUND, False),
    408: (kinds.TIMED_OUT, True),
    409: (kinds.FAILED, True),
    413: (kinds.CONTEXT, False),
    424: (kinds.FAILED, True),  # how a cloud says that the model behind it failed
    429: (kinds.RATE_LIMITED, True),
    503: (kinds.OVERLOADED, True),
    504: (kinds.TIMED_OUT, True),
    529: (kinds.OVERLOADED, True),
}
_BY_TYPE: dict[str, tuple[str, bool]] = {
    "overloaded_error": (kinds.OVERLOADED, True),
    "rate_limit_error": (kinds.RATE_LIMITED, True),
    "timeout_error": (kinds.TIMED_OUT, True),
    "api_error": (kinds.FAILED, True),
    "authentication_error": (kinds.AUTHENTICATION, False),
    "permission_error": (kinds.PERMISSION, False),
    "billing_error": (kinds.BILLING, False),
    "not_found_error": (kinds.NOT_FOUND, False),
    "request_too_large": (kinds.CONTEXT, False),
    "invalid_request_error": (kinds.FAILED, False),
    "throttlingexception": (kinds.RATE_LIMITED, True),
    "servicequotaexceededexception": (kinds.RATE_LIMITED, True),
    "serviceunavailableexception": (kinds.OVERLOADED, True),
    "modelnotreadyexception": (kinds.OVERLOADED, True),
    "internalserverexception": (kinds.FAILED, True),
    "modelstreamerrorexception": (kinds.FAILED, True),
    "modelerrorexception": (kinds.FAILED, True),
    "modeltimeoutexception": (kinds.TIMED_OUT, True),
    "validationexception": (kinds.FAILED, False),
    "accessdeniedexception": (kinds.PERMISSION, False),
    "resourcenotfoundexception": (kinds.NOT_FOUND, False),
}
"""What an error says it is, in lower case, where there is no status: inside a stream."""
_TOO_LONG = re.compile(
    r"prompt is too long|input is too long|exceeds? (?:the )?(?:model'?s )?context (?:window|limit)"
    r"|input length and `?max_tokens`? exceed context limit|context window"
    r"|too many (?:input )?tokens",
    re.IGNORECASE,
)
MESSAGE_MAX = 2_000
"""Characters of an error's message that the log keeps."""


def of_status(
    status: int, kind: str, message: str, request: Json, retry_after: float | None = None
) -> Failed:
    """A refusal by its HTTP status; `kind`: the error's own type, empty when it said none."""
    return replace(_of_status(status, kind, message, request), retry_after=retry_after)


def _of_status(status: int, kind: str, message: str, request: Json) -> Failed:
    message = _short(message) or f"HTTP {status}"
    if 300 <= status < 400:
        why = "a redirect, which is not followed: check base_url"
        return Failed(kinds.PROVIDER, why, retryable=False, status=status)
    if status in (400, 413, 422) and _TOO_LONG.search(message):
        return Failed(kinds.CONTEXT, message, retryable=False, status=status)
    if status in (400, 422):
        return _bad_request(status, kind, message, request)
    if status == 403 and kind == "billing_error":
        return Failed(kinds.BILLING, message, retryable=False, status=status)
    known = _BY_STATUS.get(status)
    named, retryable = known or (kinds.FAILED, status >= 500)
    return Failed(named, message, retryable, status=status)


def of_event(kind: str, message: str) -> Failed:
    """An `error` event inside a stream that had begun well."""
    message = _short(message) or "the stream ended with an error"
    named, retryable = _BY_TYPE.get(kind.lower(), (kinds.FAILED, True))
    if _TOO_LONG.search(message):
        named, retryable = kinds.CONTEXT, False
    return Failed(named, message, retryable)


def cut(message: str) -> Failed:
    """A reply that did not come whole, or cannot be read."""
    return Failed(kinds.CUT, _short(message), retryable=True)


def timed_out(message: str) -> Failed:
    """Nothing came for too long."""
    return Failed(kinds.TIMED_OUT, message, retryable=True)


def _bad_request(status: int, kind: str, message: str, request: Json) -> Failed:
    """A request that is wrong as it stands: one part of it, where the message says which."""
    feature = features.named(message, request)
    blocks = media.refused(message, request)
    one_of_them = not feature or media.names_place(message)
    if blocks and one_of_them and feature in ("", "images", "documents"):
        return Failed(kinds.MEDIA, message, retryable=True, status=status, media=tuple(blocks))
    if feature:
        return Failed(kinds.FEATURE, message, retryable=True, status=status, feature=feature)
    named = (
        kinds.BILLING if kind == "billing_error" or "credit balance" in message else kinds.FAILED
    )
    return Failed(named, message, retryable=False, status=status)


def _short(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"
