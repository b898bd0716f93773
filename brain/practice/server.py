"""The practice model over HTTP: the Messages API's routes, its headers, its errors.

It keeps no conversation: what it answers follows from the request. Beside
the API it has `GET /practice` (what this is) and `GET /practice/requests`.
"""

import secrets
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from brain.practice import models
from brain.practice.answer import Failure, Script
from brain.practice.obey import HELP, WHAT_I_AM
from brain.practice.player import Play, Player
from brain.practice.record import Entry, Record
from brain.practice.refusal import Refusal
from brain.practice.reply import message_of
from brain.practice.request import read_count, read_messages
from brain.practice.sse import events_of
from brain.practice.streaming import BrokenResponse, EventStream, pause

BODY_BYTES = 32 * 1024 * 1024
"""The API's own limit on a request."""
_WAIT_MAX = 60.0
"""Seconds that `GET /practice/requests` waits at most."""
_WORDS = {429: "This request would exceed your rate limit", 529: "Overloaded"}


class Practice:
    """The ASGI application."""

    def __init__(
        self, scripts: Sequence[Script] = (), latency: float = 0, player: Player | None = None
    ) -> None:
        """`player` chooses the answers in place of scripts and instructions."""
        self._scripts = scripts
        self._player = player or Player(scripts)
        self._record = Record()
        self._latency = latency
        self._routes = Starlette(
            routes=[
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/v1/models/{model_id}", self._model),
                Route("/practice", self._about),
                Route("/practice/requests", self._requests),
            ],
            exception_handlers={
                Refusal: _refused,
                HTTPException: _no_route,
                Exception: _broke,
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        retry = request.headers.get("x-stainless-retry-count", "")
        entry = Entry(
            method=request.method,
            path=request.url.path,
            request_id=f"req_{secrets.token_hex(12)}",
            retry=int(retry) if retry.isdecimal() else 0,
        )

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry.answer(message["status"])
                message["headers"] = [
                    *message["headers"],
                    (b"request-id", entry.request_id.encode()),
                ]
                if not entry.path.startswith("/practice"):
                    self._record.add(entry)
            await send(message)

        await self._routes({**scope, "state": {"entry": entry}}, receive, answer)

    async def _messages(self, request: Request) -> Response:
        raw = await self._read(request)
        body, conversation = read_messages(raw)
        play = self._player.play(conversation, raw)
        request.state.entry.played = play.source
        if wait := self._latency + play.answer.delay.first:
            await pause(wait, request.receive)
        if play.error and (play.error.after is None or not body.stream):
            raise _failure(play.error)
        message = message_of(play.answer, conversation, body.max_tokens)
        if body.stream:
            return _stream(play, message, request.state.entry.request_id)
        return BrokenResponse(message) if play.cut else JSONResponse(message)

    async def _count_tokens(self, request: Request) -> Response:
        conversation = read_count(await self._read(request))
        return JSONResponse({"input_tokens": conversation.input_tokens})

    async def _models(self, request: Request) -> Response:
        await self._read(request)
        query = request.query_params
        return JSONResponse(
            models.page(after_id=query.get("after_id"), before_id=query.get("before_id"))
        )

    async def _model(self, request: Request) -> Response:
        await self._read(request)
        return JSONResponse(models.model(request.path_params["model_id"]))

    async def _about(self, _: Request) -> Response:
        scripts = [{"name": script.name, "match": script.match} for script in self._scripts]
        return JSONResponse({"what": WHAT_I_AM, "obeys": HELP, "scripts": scripts})

    async def _requests(self, request: Request) -> Response:
        after, wait = _number(request, "after", 0), _number(request, "wait", 0)
        entries = await self._record.wait(int(after), min(wait, _WAIT_MAX))
        return JSONResponse({"requests": [entry.facts() for entry in entries]})

    async def _read(self, request: Request) -> bytes:
        """The body of an authenticated request, noted in the record."""
        raw = bytearray()
        async for part in request.stream():
            raw += part
            if len(raw) > BODY_BYTES:
                raise Refusal("Request exceeds the maximum allowed number of bytes.", status=413)
        request.state.entry.raw = bytes(raw)
        self._record.add(request.state.entry)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        bearer = scheme.lower() == "bearer" and token.strip()
        if not (bearer or request.headers.get("x-api-key")):
            raise Refusal("x-api-key header is required; any value will do here", status=401)
        if not request.headers.get("anthropic-version"):
            raise Refusal("anthropic-version: header is required")
        return bytes(raw)


def _stream(play: Play, message: dict[str, object], request_id: str) -> EventStream:
    events = list(events_of(message, play.answer.chunk))
    if play.error and play.error.after is not None:
        events = [*events[: play.error.after], _failure(play.error).body(request_id)]
    if play.cut:
        events = events[: play.cut.after]
    broken = play.cut is not None and not play.cut.clean
    return EventStream(events, chunk_delay=play.answer.delay.chunk, broken=broken)


def _failure(error: Failure) -> Refusal:
    words = error.message or _WORDS.get(error.status, "Internal server error")
    return Refusal(
        f"{words} (a script of the practice model)",
        status=error.status,
        retry_after=error.retry_after,
    )


def _number(request: Request, name: str, default: float) -> float:
    try:
        value = float(request.query_params.get(name, default))
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise Refusal(f"{name}: Input should be a number, 0 or more")
    return value


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    body = error.body(request.state.entry.request_id)
    return JSONResponse(body, status_code=error.status, headers=error.headers())


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    words = "Method Not Allowed" if status == 405 else "Not Found"
    return await _refused(request, Refusal(words, status=status))


async def _broke(request: Request, _: Exception) -> Response:
    # Starlette raises the error again afterwards, so the log has its traceback.
    return await _refused(request, Refusal("Internal server error", status=500))
