"""The Messages API that Claude Code is pointed at: each request becomes a question to the harness.

It listens on loopback, on a free port, and answers only who knows its token.
It is also what Claude Code is told to use as a proxy, so whatever else it
would reach for ends here, refused.
"""

import asyncio
import hmac
import json
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from hashlib import sha256

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from brain.context.tokens import estimate
from brain.harnesses.claude_code.wire import Json, encode, error_of, events_of
from brain.serving import Server, serve

log = logging.getLogger(__name__)

PING_EVERY = 5.0
"""Seconds of silence in a stream before a ping: it would take a long one for dead."""

STRAYS_MAX = 20
"""Of one process; what it reaches for after that is refused and not noted."""
_STRAY_MAX = 200
"""Characters of each."""
_KEPT = 2
"""Answered questions kept for who asks them again."""


@dataclass(eq=False)
class Ask:
    """A request that waits for its answer."""

    body: Json
    answer: "asyncio.Future[Json]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """A message, or an error, of the Messages API."""

    def reply(self, message: Json) -> None:
        """Answer it."""
        if not self.answer.done():
            self.answer.set_result(message)

    def failed(self) -> bool:
        """Whether its answer is an error."""
        answer = self.answer
        return answer.done() and (answer.cancelled() or answer.result()["type"] == "error")


@dataclass(frozen=True)
class Ended:
    """No request will come any more."""

    why: str
    """Goes into the log: in words, without a name of a file on this machine."""
    for_good: bool = False
    """Whether another process would end like it."""


def in_words(error: Exception) -> str:
    """What a session is told of an error: the system's word for it, and no path."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


class Endpoint:
    """One process's way to the model."""

    def __init__(self, asked: Callable[[Ask], None]) -> None:
        """`asked` is called with each request, once however often it is sent."""
        self.token = secrets.token_urlsafe(32)
        self.strays: list[str] = []
        """The first of what else was asked for, and refused; the brain's log has these."""
        self._asked = asked
        self._known: dict[bytes, Ask] = {}
        self._server: Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen."""
        sock = socket.create_server(("127.0.0.1", 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = sock.getsockname()
        self.url = f"http://{host}:{port}"
        app = Starlette(
            routes=[
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
            ],
            exception_handlers={404: self._stray, 405: self._stray},
        )
        self._server = Server(uvicorn.Config(app, http="h11", **serve()))
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]))
        await self._server.up.wait()

    async def stop(self) -> None:
        """Answer nothing any more."""
        for ask in self._known.values():
            ask.answer.cancel()
        if self._server is not None and self._task is not None:
            self._server.stop.set()
            await self._task

    async def _messages(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        raw = await request.body()
        try:
            body: Json = json.loads(raw)
        except ValueError:
            return JSONResponse(error_of("invalid_request_error", "no JSON"), 400)
        ask = self._ask(raw, body)
        if body.get("stream"):
            return StreamingResponse(_stream(ask), media_type="text/event-stream")
        answer = await asyncio.shield(ask.answer)
        return JSONResponse(answer, 400 if answer["type"] == "error" else 200)

    def _ask(self, raw: bytes, body: Json) -> Ask:
        """The question; the same for who lost the connection, and the reply, and asks again."""
        key = sha256(raw).digest()
        known = self._known.get(key)
        if known is not None and not known.failed():
            return known
        for old in [k for k, ask in self._known.items() if ask.answer.done()][:-_KEPT]:
            del self._known[old]
        ask = self._known[key] = Ask(body)
        self._asked(ask)
        return ask

    async def _count(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        return JSONResponse({"input_tokens": _tokens(await request.json())})

    def _refused(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.headers.get("x-api-key", given)
        if hmac.compare_digest(given.encode(), self.token.encode()):
            return None
        return JSONResponse(error_of("authentication_error", "not the token"), 401)

    async def _stray(self, request: Request, _: Exception) -> Response:
        if len(self.strays) < STRAYS_MAX:
            what = f"{request.method} {request.url}"[:_STRAY_MAX]
            self.strays.append(what)
            log.warning("claude code reached for something else", extra={"what": what})
        return JSONResponse(error_of("not_found_error", "only the model is here"), 404)


async def _stream(ask: Ask) -> AsyncIterator[bytes]:
    while not ask.answer.done():
        done, _ = await asyncio.wait({ask.answer}, timeout=PING_EVERY)
        if not done:
            yield encode({"type": "ping"})
    if ask.answer.cancelled():
        return
    answer = ask.answer.result()
    for event in [answer] if answer["type"] == "error" else events_of(answer):
        yield encode(event)


def _tokens(body: Json) -> int:
    """Of a request, about: for what only needs the magnitude."""
    return estimate([body.get("system"), body.get("tools"), body.get("messages")])
