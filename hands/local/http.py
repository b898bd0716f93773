"""HTTP/1.1 as the local socket speaks it: one request a connection, small, and soon.

Read strictly: what could be understood in two ways is refused. Nothing of it is chunked, kept
open or compressed, so that a few lines do, and `curl --unix-socket` is served.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Code, Reason

HEAD_MAX = 8 * 1024
"""Bytes of a request's head."""
BODY_MAX = 64 * 1024
"""Bytes of a request's body."""

_LINE = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*) HTTP/1\.[01]")
_LENGTH = re.compile(rb"[0-9]{1,9}")
_STATUSES = {
    Code.INVALID_ARGUMENT: 400,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.FAILED_PRECONDITION: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a route says."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    allow: str = ""
    """The methods that a path takes, in a 405."""
    more: tuple[str, ...] = ()
    """Further lines of its head."""

    @classmethod
    def text(cls, line: str, status: int = 200) -> "Answer":
        """One line for people."""
        return cls(line.encode() + b"\n", status, "text/plain; charset=utf-8")

    @classmethod
    def json(cls, row: Mapping[str, Any], status: int = 200) -> "Answer":
        """One object, on one line."""
        return cls(json.dumps(dict(row)).encode() + b"\n", status)

    @classmethod
    def refusal(cls, error: CarpalError, status: int | None = None) -> "Answer":
        """An error, with its reason and what to do."""
        row = {"reason": error.reason.value, "error": error.message, "action": error.action}
        return cls.json(row, status or _STATUSES.get(error.code, 500))

    def encoded(self, *, body: bool = True) -> bytes:
        """As it goes over the wire; a HEAD gets no body."""
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
            "Cache-Control: no-store",
            *([f"Allow: {self.allow}"] if self.allow else []),
            *self.more,
        ]
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        return head + (self.body if body else b"")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    method: str
    path: str
    """Without the query."""
    body: bytes = b""
    query: str = ""
    head: Mapping[str, str] = field(default_factory=dict)
    """By the name in lower case; of one that is there twice both, which no check takes."""

    def fields(self, **known: type) -> dict[str, Any]:
        """The JSON object in the body, empty if there is none; INVALID_FIELD names what is wrong.

        `known` are the names that it may have, and the type of each.
        """
        try:
            row = json.loads(self.body or b"{}")
        except (ValueError, RecursionError):
            raise _bad("the body", "it is not JSON") from None
        if not isinstance(row, dict):
            raise _bad("the body", "it is not a JSON object")
        for name, value in row.items():
            if name not in known:
                raise _bad(repr(name), f"it is unknown here; there is {', '.join(known)}")
            if type(value) is not known[name]:
                raise _bad(repr(name), f"it is not of the type {known[name].__name__}")
        return row


class Malformed(Exception):
    """What was sent is no request that is answered; says why, and the status to answer with."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


Handler = Callable[[Request], Answer | Awaitable[Answer]]
Routes = Mapping[str, Handler]
"""`METHOD /path` → what answers it. A CarpalError that it raises is told."""


async def read(reader: asyncio.StreamReader) -> Request:
    """The request that comes. Raises Malformed; IncompleteReadError when the other end leaves."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Malformed(431, f"the head has more than {HEAD_MAX} bytes") from None
    line, *rest = head[:-4].split(b"\r\n")
    asked = _LINE.fullmatch(line)
    if asked is None:
        raise Malformed(400, "the first line is not METHOD /PATH HTTP/1.1")
    length: int | None = None
    fields: dict[str, str] = {}
    for each in rest:
        name, colon, value = each.partition(b":")
        if not colon or name != name.strip():
            raise Malformed(400, "a line of the head is not NAME: VALUE")
        key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
        fields[key] = f"{fields[key]}, {text}" if key in fields else text
        match name.lower():
            case b"transfer-encoding":
                raise Malformed(411, "the body must have a Content-Length")
            case b"content-length" if length is not None or not _LENGTH.fullmatch(value.strip()):
                raise Malformed(400, "the Content-Length is not one number")
            case b"content-length":
                length = int(value)
    length = length or 0
    if length > BODY_MAX:
        raise Malformed(413, f"the body has more than {BODY_MAX} bytes")
    method, target = (part.decode() for part in asked.groups())
    path, _, query = target.partition("?")
    return Request(method, path, await reader.readexactly(length), query, fields)


async def answer(request: Request, routes: Routes) -> Answer:
    """What the route of a request says; a path that has none gets the list of those there are."""
    method = "GET" if request.method == "HEAD" else request.method
    handler = routes.get(f"{method} {request.path}")
    if handler is None:
        return _no_route(request, routes)
    try:
        said = handler(request)
        return said if isinstance(said, Answer) else await said
    except CarpalError as error:
        return Answer.refusal(error)


def _no_route(request: Request, routes: Routes) -> Answer:
    methods = [method for method, _, path in map(_parts, routes) if path == request.path]
    if methods:
        problem = f"{request.path} is not asked by {request.method}"
        error = refuse(Reason.INVALID_FIELD, problem, action=f"use {' or '.join(methods)}")
        said = Answer.refusal(error, 405)
        return Answer(said.body, 405, allow=", ".join(methods))
    there = refuse(
        Reason.INVALID_FIELD,
        f"there is no {request.path} here",
        action=f"ask for one of: {', '.join(sorted(routes))}",
    )
    return Answer.refusal(there, 404)


def _parts(route: str) -> tuple[str, str, str]:
    return route.partition(" ")


def _bad(what: str, problem: str) -> CarpalError:
    return refuse(Reason.INVALID_FIELD, f"{what}: {problem}", action="correct the request")
