"""The page by which a person watches a hand: served to one browser on this machine's loopback.

Everybody on the machine reaches its port, and so does every page that a browser has open. So the
address holds a secret that opens the page once, in its fragment, which no browser sends or keeps
for another; what it is exchanged for goes with each request, in a line that no form or link can
set. And a request must name this very address as its host, and as its origin where it has one.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from carpal.errors import CarpalError, invalid, refuse
from carpal.status import Reason
from hands import controls
from hands.local.http import HEAD_MAX, Answer, Handler, Malformed, Request, answer, read
from hands.visit.view_state import Screen

log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_FILE = Path(__file__).with_name("view_page.html")
_KEY = "x-carpal-key"
_LIMIT = 5.0
"""Seconds for a request to come, and for an answer to be taken."""
_POLL = 5.0
"""Seconds after which the page is told that nothing changed, and asks again."""
_AT_ONCE = 32
"""Connections that are served. For one more the one that has been silent longest is closed: any
process of the machine may connect, and say nothing."""
_EVENTS_MAX = 100
"""In one request."""
_PART = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
_NUMBER = re.compile(r"after=([0-9]{1,9})")


class Watched(Protocol):
    """What the page is about."""

    screen: Screen

    def seen(self) -> None:
        """The newest picture was fetched."""

    def heard(self) -> None:
        """The page is there."""

    async def take(self) -> None:
        """Take control."""

    async def give_back(self) -> None:
        """Give it back."""

    async def do(self, event: controls.Event) -> None:
        """Something that the person does."""


class Page:
    """One, at a port of its own."""

    def __init__(self, watched: Watched, port: int) -> None:
        self.heard_the_end = asyncio.Event()
        """The page knows that it is over."""
        self._watched = watched
        self._host = f"{_HOST}:{port}"
        self._origin = f"http://{self._host}"
        self._once = secrets.token_urlsafe(32)
        self._key = ""
        """What the page's requests have, once it was opened."""
        self._body = _FILE.read_bytes()
        self._policy = _policy(self._body.decode())
        self._routes: dict[str, Handler] = {
            "GET /": self._page,
            "POST /open": self._open,
            "GET /screen": self._screen,
            "GET /picture": self._picture,
            "POST /control": self._control,
            "POST /events": self._events,
        }

    @property
    def address(self) -> str:
        """What opens it, once."""
        return f"{self._origin}/#{self._once}"

    async def answer(self, request: Request) -> Answer:
        """What is answered, by whoever asked."""
        try:
            self._check(request)
        except CarpalError as error:
            return Answer.refusal(error, 403)
        return await answer(request, self._routes)

    def _check(self, request: Request) -> None:
        origin = request.head.get("origin")
        if request.head.get("host") != self._host or origin not in (None, self._origin):
            raise _denied(f"this is {self._origin} and nothing else")
        if request.method == "POST" and origin is None:
            raise _denied("a request that changes something has an Origin")
        if request.path in ("/", "/open"):
            return
        given = request.head.get(_KEY, "")
        if not self._key or not hmac.compare_digest(given.encode(), self._key.encode()):
            raise _denied("only the page that was opened may ask")
        self._watched.heard()

    def _page(self, _: Request) -> Answer:
        return Answer(self._body, kind="text/html; charset=utf-8", more=(self._policy, *_GUARDS))

    def _open(self, request: Request) -> Answer:
        """Exchange the address's secret for what this one page asks by."""
        given = str(request.fields(once=str).get("once", ""))
        right = hmac.compare_digest(given.encode("utf-8", "replace"), self._once.encode())
        if not right or self._key:
            raise _denied("the address opens one page, once; run the command again")
        self._key = secrets.token_urlsafe(32)
        return Answer.json({"key": self._key})

    async def _screen(self, request: Request) -> Answer:
        after = _NUMBER.fullmatch(request.query)
        if after is None:
            raise invalid("after", "must be the number of a change")
        now = await self._watched.screen.after(int(after[1]), _POLL)
        if now["over"]:
            self.heard_the_end.set()
        return Answer.json(now)

    def _picture(self, _: Request) -> Answer:
        picture = self._watched.screen.picture
        if picture is None:
            return Answer(b"", 204)
        self._watched.seen()
        return Answer(picture.data, kind=picture.media_type, more=_GUARDS)

    async def _control(self, request: Request) -> Answer:
        if request.fields(take=bool).get("take"):
            await self._watched.take()
        else:
            await self._watched.give_back()
        return Answer.json({})

    async def _events(self, request: Request) -> Answer:
        events = request.fields(events=list).get("events", [])
        if len(events) > _EVENTS_MAX:
            raise invalid("events", f"are {len(events)}, and at most {_EVENTS_MAX} at once")
        try:
            checked = [controls.checked(each) for each in events]
        except ValueError as error:
            raise invalid("events", str(error)) from None
        for event in checked:
            await self._watched.do(event)
        return Answer.json({})


_GUARDS = (
    "X-Content-Type-Options: nosniff",
    "Referrer-Policy: no-referrer",
    "Cross-Origin-Resource-Policy: same-origin",
    "Cross-Origin-Opener-Policy: same-origin",
)


def _policy(page: str) -> str:
    """Only what is in the page runs, and it asks nobody but us."""
    digests = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in _PART.findall(page)
    }
    return (
        "Content-Security-Policy: default-src 'none'; img-src blob:; connect-src 'self'; "
        f"script-src 'sha256-{digests['script']}'; style-src 'sha256-{digests['style']}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _denied(why: str) -> CarpalError:
    action = "open the address that the command printed"
    return refuse(Reason.ROLE_NOT_ALLOWED, why, action=action)


@asynccontextmanager
async def serving(watched: Watched) -> AsyncIterator[Page]:
    """Serve it while the block lasts."""
    tasks: set[asyncio.Task[None]] = set()
    silent: dict[asyncio.StreamWriter, None] = {}
    pages: list[Page] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(tasks) >= _AT_ONCE:
            longest = next(iter(silent), None)
            if longest is None:  # all are being answered
                writer.transport.abort()
                return
            del silent[longest]
            longest.transport.abort()
        silent[writer] = None
        task = asyncio.create_task(_serve(reader, writer, pages[0], silent))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, _HOST, 0, limit=HEAD_MAX, start_serving=False)
    pages.append(Page(watched, server.sockets[0].getsockname()[1]))
    await server.start_serving()
    try:
        yield pages[0]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    page: Page,
    silent: dict[asyncio.StreamWriter, None],
) -> None:
    """Answer one request; until it has come, the connection is among the `silent`."""
    try:
        try:
            async with asyncio.timeout(_LIMIT):
                request = await read(reader)
            silent.pop(writer, None)
            said = await page.answer(request)
            body = request.method != "HEAD"
        except Malformed as error:
            problem = refuse(Reason.INVALID_FIELD, str(error), action="correct the request")
            said, body = Answer.refusal(problem, error.status), True
        writer.write(said.encoded(body=body))
        async with asyncio.timeout(_LIMIT):
            await writer.drain()
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        writer.transport.abort()  # who asked went away, or does not read
    finally:
        silent.pop(writer, None)
        writer.close()
