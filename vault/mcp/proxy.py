"""The MCP proxy: each request of a brain ends here, and one of the vault's begins.

    POST /mcp/<server>    Authorization: Bearer <grant>

`<server>` is a name in the grant; where that server is, and what it is told of who asks, no caller
has a say in.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from vault.http.exchange import Exchange, TooLarge
from vault.mcp import headers
from vault.mcp.asked import Ask, answer, greeting, read
from vault.mcp.calls import Asking, Calls
from vault.mcp.jsonrpc import Id, Json, Malformed, Notification, Request, message, written
from vault.mcp.policy import ServerPolicy
from vault.mcp.ports import Grant, Grants
from vault.mcp.refusals import Refusal, Why

BODY_MAX = 4 * 1024 * 1024
_PATH = re.compile(r"/mcp/([a-z0-9][a-z0-9_-]{0,62})")
_BEARER = re.compile(r"Bearer ([\x21-\x7e]{1,512})")
_JSON = re.compile(r'application/json(;\s*charset="?utf-8"?)?', re.IGNORECASE)
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-store"}
_PING = 15.0
"""Seconds of silence after which a caller that hears how far it is hears that it still is."""


class Proxy:
    """The handler of the listener `mcp`."""

    def __init__(self, grants: Grants, calls: Calls) -> None:
        self._grants = grants
        self._calls = calls
        self._going: dict[tuple[str, str, Id], asyncio.Timeout] = {}
        """What goes on for callers that cancel by a message of their own, by grant and id."""

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        found = _PATH.fullmatch(exchange.path)
        if found is None or exchange.query:
            await exchange.answer_json(404, {"error": {"reason": "NOT_FOUND"}})
            return
        token = _BEARER.fullmatch(exchange.header("authorization") or "")
        grant = await self._grants.check(token[1] if token else "", exchange.caller, "mcp")
        if exchange.method != "POST":
            await exchange.answer(405, headers={"allow": "POST"})
            return
        try:
            policy = grant.servers.get(found[1])
            if policy is None:
                raise Refusal(Why.SERVER_UNKNOWN)
            said = await _message(exchange)
        except Refusal as refusal:
            await _refuse(exchange, None, refusal)
            return
        if isinstance(said, Notification):
            self._heard(grant, policy, said)
            await exchange.answer(202)
            return
        await self._answer(exchange, grant, policy, said)

    async def _answer(
        self, exchange: Exchange, grant: Grant, policy: ServerPolicy, said: Request
    ) -> None:
        try:
            ask = read(said)
            trace = headers.trace(exchange.header("traceparent"))
            asking = Asking(grant, policy, ask, exchange.caller.uri, trace)
            reply: _Reply = _Whole(exchange) if ask.progress is None else _Events(exchange, ask)
            with self._cancellable(asking) as limit:
                async with _while_granted(grant), reply.going_on(), limit:
                    result = await self._result(asking, reply)
            await reply.end(answer(ask, result))
        except TimeoutError:
            # Only a caller's own word ends it so, and it wants no answer.
            await _refuse(exchange, said.id, Refusal(Why.TIMED_OUT))
        except Refusal as refusal:
            await _refuse(exchange, said.id, refusal)

    async def _result(self, asking: Asking, reply: "_Reply") -> Mapping[str, Any]:
        ask, policy = asking.ask, asking.policy
        match ask.method:
            case "ping":
                return {}
            case "initialize" | "server/discover":
                return greeting(ask, policy.name, not (policy.resources or policy.prompts))
            case "tools/list":
                return await self._calls.tools(asking)
            case "tools/call":
                return await self._calls.call(asking, reply.progress if ask.progress else None)
            case _:
                return await self._calls.other(asking)

    def _heard(self, grant: Grant, policy: ServerPolicy, said: Notification) -> None:
        """A caller of before cancels by a message; what else it says is of no use to anyone."""
        cancelled = said.params.get("requestId")
        if said.method == "notifications/cancelled" and isinstance(cancelled, str | int):
            limit = self._going.get((grant.id, policy.name, cancelled))
            if limit is not None and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    @contextlib.contextmanager
    def _cancellable(self, asking: Asking) -> Any:
        key = (asking.grant.id, asking.policy.name, asking.ask.id)
        limit = asyncio.timeout(None)
        alone = key not in self._going  # a caller that gives one id to two requests cancels none
        if alone:
            self._going[key] = limit
        try:
            yield limit
        finally:
            if alone:
                del self._going[key]


@contextlib.asynccontextmanager
async def _while_granted(grant: Grant) -> AsyncIterator[None]:
    """Around what goes on by a grant: ends it, as GRANT_ENDED, when the grant does."""
    if grant.revoked.is_set():
        raise Refusal(Why.GRANT_ENDED)
    limit = asyncio.timeout(None)

    async def watch() -> None:
        await grant.revoked.wait()
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time())

    watching = asyncio.create_task(watch())
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise Refusal(Why.GRANT_ENDED) from None
    finally:
        watching.cancel()


async def _message(exchange: Exchange) -> Request | Notification:
    if not _JSON.fullmatch(exchange.header("content-type") or ""):
        raise Refusal(Why.NO_REQUEST)
    try:
        said = message(await exchange.body(BODY_MAX))
    except Malformed:
        raise Refusal(Why.MALFORMED) from None
    except TooLarge:
        raise Refusal(Why.NO_REQUEST) from None
    if not isinstance(said, Request | Notification):
        raise Refusal(Why.NO_REQUEST)
    return said


async def _refuse(exchange: Exchange, request_id: Id | None, refusal: Refusal) -> None:
    body = written({"id": request_id, "error": refusal.error()})
    if not exchange.begun:
        await exchange.answer(refusal.why.status, body, {"content-type": "application/json"})
        return
    await exchange.write(_event(body))
    await exchange.end()


class _Reply(Protocol):
    """How a caller gets its reply."""

    def going_on(self) -> Any:
        """Around the work."""
        ...

    async def progress(self, said: Mapping[str, Any]) -> None:
        """How far it is."""
        ...

    async def end(self, reply: Json) -> None:
        """The reply."""
        ...


class _Whole:
    """As one JSON."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def going_on(self) -> Any:
        return contextlib.nullcontext()

    async def progress(self, said: Mapping[str, Any]) -> None:
        return None

    async def end(self, reply: Json) -> None:
        await self._exchange.answer(200, written(reply), {"content-type": "application/json"})


class _Events:
    """At the end of events that say how far it is."""

    def __init__(self, exchange: Exchange, ask: Ask) -> None:
        self._exchange = exchange
        self._token = ask.progress
        self._writing = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        pinging = asyncio.create_task(self._ping())
        try:
            yield
        finally:
            pinging.cancel()
            await asyncio.wait({pinging})

    async def progress(self, said: Mapping[str, Any]) -> None:
        told: Json = {"progressToken": self._token}
        for key, kind in (("progress", int | float), ("total", int | float), ("message", str)):
            if isinstance(said.get(key), kind):
                told[key] = said[key]
        await self._write(_event(written({"method": "notifications/progress", "params": told})))

    async def end(self, reply: Json) -> None:
        if not self._exchange.begun:
            await _Whole(self._exchange).end(reply)
            return
        await self._write(_event(written(reply)))
        await self._exchange.end()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING)
            await self._write(b":\n\n")

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            if not self._exchange.begun:
                await self._exchange.begin(200, _EVENTS)
            await self._exchange.write(data)


def _event(body: bytes) -> bytes:
    return b"event: message\ndata: " + body + b"\n\n"
