"""A server's answer to one request: a reply, as JSON or at the end of events, or a refusal of ours.

What goes wrong is told in words of ours alone. What the server says cannot be read is not repeated
anywhere, for it may hold what it was sent.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from vault.guard.response import Response
from vault.mcp.jsonrpc import Json, Malformed, Notification, Reply, Request, message
from vault.mcp.refusals import Refusal, Why
from vault.mcp.sse import Events, TooMuch
from vault.mcp.unescaped import may_hide

Told = Callable[[Notification], Awaitable[None]]
Asked = Callable[[Request], Awaitable[None]]
Clean = Callable[[Json], Json]
"""Strikes secrets out of a result once more, where escapes could hide them from the guard."""


class Unauthorized(Exception):
    """The server does not take the credential: it did nothing."""


class Refused(Exception):
    """The server took the request for none: by its status, and, if it said one, by its code."""

    def __init__(self, status: int, code: int | None = None, data: Any = None) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.data = data


async def reply_to(
    response: Response,
    request_id: int,
    *,
    told: Told,
    asked: Asked,
    clean: Clean,
    event_max: int,
) -> Reply:
    """The reply. Raises Unauthorized, Refused, Refusal and GuardError.

    `told` gets what the server says on the way, `asked` what it asks.
    """
    kind = _kind(response.headers.get("content-type", ""))
    if response.status == 401:
        raise Unauthorized
    if response.status == 403:
        raise Refusal(Why.AUTHENTICATION_FAILED, "403")
    if response.status != 200:
        raise await _refused(response, kind)
    if kind == "application/json":
        return _expected(_read(await response.read(), clean), request_id)
    if kind == "text/event-stream":
        async with aclosing(_messages(response, clean, event_max)) as messages:
            async for each in messages:
                if isinstance(each, Reply):
                    return _expected(each, request_id)
                await (asked(each) if isinstance(each, Request) else told(each))
        raise Refusal(Why.SERVER_GONE, "the events ended before the reply")
    raise Refusal(Why.SERVER_BROKEN, "neither JSON nor events")


async def _messages(
    response: Response, clean: Clean, event_max: int
) -> AsyncGenerator[Request | Notification | Reply, None]:
    events = Events(event_max)
    async for part in response:
        try:
            whole = events.feed(part)
        except TooMuch:
            raise Refusal(Why.RESULT_TOO_LARGE, "events") from None
        for data in whole:
            yield _read(data, clean)


async def _refused(response: Response, kind: str) -> Exception:
    """What another status is: an error of JSON-RPC may come with any."""
    if 300 <= response.status < 400:
        return Refusal(Why.SERVER_REFUSED, "a redirect", status=response.status)
    if response.status < 300:
        return Refusal(Why.SERVER_BROKEN, "accepted, without a reply")
    if kind == "application/json":
        try:
            found = message(await response.read(), strict=False)
        except Malformed:
            found = None
        if isinstance(found, Reply) and found.error is not None:
            return Refused(response.status, found.error["code"], found.error.get("data"))
    return Refused(response.status)


def _read(data: bytes, clean: Clean) -> Request | Notification | Reply:
    try:
        found = message(data, strict=False)
        if not may_hide(data):
            return found
        if isinstance(found, Reply):
            return replace(found, result=found.result and clean(found.result))
        return replace(found, params=clean(found.params))
    except Malformed as error:
        raise Refusal(Why.SERVER_BROKEN, str(error)) from None


def _expected(found: Request | Notification | Reply, request_id: int) -> Reply:
    if not isinstance(found, Reply):
        raise Refusal(Why.SERVER_BROKEN, "no reply")
    if found.error is not None and found.id in (None, request_id):
        return found
    if type(found.id) is not int or found.id != request_id:
        raise Refusal(Why.SERVER_BROKEN, "a reply to another request")
    return found


def _kind(value: str) -> str:
    """The media type, without what stands after it."""
    return value.partition(";")[0].strip().lower()
