"""The connection to one MCP server.

A task of its own holds it, for a server that dies may end all that its client began, and not only
the call that waits. Whoever asks waits for both. What the server writes where no messages belong
is kept for who is to learn why it failed: the last of it.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Implementation,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from hands.api import HandLost, ToolError
from hands.mcp.bounded import Bounded
from hands.mcp.program import Program
from hands.mcp.said import MOST, shown
from hands.mcp.streams import streams, useful
from hands.mcp.words import plain
from hands.plugins.hosted import NotBegun

START_LIMIT = 30.0
"""Seconds for a server to be ready for calls."""
_END_LIMIT = 2.5
"""Seconds for it to end: a hand has three."""
_CANCEL_LIMIT = 1.0
"""Seconds to tell it that a call is cancelled."""
_PAGES_MAX = 50
_LINES = 8
_HTTP_LIMIT = 30.0
"""Seconds to connect, and between heads; an answer may take as long as its call."""
_OURS = ("PYTHONPATH", "PYTHONUNBUFFERED")
"""Variables of our own process."""

_MAY_BE_ITS_END = {CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST}
"""What a client of HTTP makes of an answer that does not come, and a server may say itself."""
_VERSION = "1"
"""Of the client, as servers are told; ours is not known in a sandbox."""

Progress = Callable[[float, float | None, str | None], None]


class Server:
    """One, which is started by `connect` and ended by `close`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` is the hand's: `command`, or `url`."""
        self._config = config
        self._program: Program | None = None
        self._bounded: Bounded | None = None
        self._wrong = 0
        self.changed = False
        """It said that its tools are others now."""
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._why = ""
        logging.getLogger("mcp").addHandler(logging.NullHandler())
        logging.getLogger("mcp").propagate = False  # what it logs is no call's output

    async def connect(self) -> None:
        """Have it ready for calls. Raises ToolError with why it is not, and its last words."""
        self._task = asyncio.create_task(self._hold())
        try:
            async with asyncio.timeout(START_LIMIT):
                await _first(self._task, self._ready)
        except TimeoutError:
            await self.close()
            raise ToolError(
                self._said(f"the MCP server was not ready after {START_LIMIT:g} s")
            ) from None
        if not self._ready.done():
            raise ToolError(self._said(f"the MCP server did not start: {self._why}"))

    async def tools(self) -> list[tuple[str, str, Any]]:
        """Name, description and schema of each tool."""
        found: list[tuple[str, str, Any]] = []
        cursor = None
        for _ in range(_PAGES_MAX):
            page = await self._ask(self._client.list_tools(cursor=cursor), START_LIMIT)
            found += [(t.name, t.description or "", t.input_schema) for t in page.tools]
            cursor = page.next_cursor
            if not cursor:
                return found
        raise ToolError(f"the MCP server lists its tools on more than {_PAGES_MAX} pages")

    async def call(self, name: str, given: Mapping[str, Any], tell: Progress) -> dict[str, Any]:
        """A `CallToolResult`, as JSON has it. Raises HandLost and ToolError, and NotBegun."""
        assert self._task is not None
        if self._closing.is_set() or self._task.done():
            raise NotBegun(self._gone)
        try:
            json.dumps(given, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ToolError(
                "not run: the input holds half of a character, which is no text"
            ) from None

        async def told(
            progress: float, total: float | None = None, message: str | None = None
        ) -> None:
            tell(progress, total, message)

        asking = self._client.call_tool(name, dict(given), progress_callback=told)
        result = await self._ask(asking, None)
        return dict(result.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def close(self) -> None:
        """End it, within the time that there is."""
        if self._task is None:
            return
        self._closing.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_END_LIMIT)

    async def ended(self) -> str:
        """Wait until it is gone by itself; why."""
        assert self._task is not None
        await asyncio.wait({self._task})
        return self._gone

    @property
    def _gone(self) -> str:
        return self._said("the MCP server is gone" + (f": {self._why}" if self._why else ""))

    @property
    def _client(self) -> Client:
        return self._ready.result()

    async def _ask(self, asked: Any, limit: float | None) -> Any:
        """What it answers; cancelled with who waits for it."""
        assert self._task is not None
        asking = asyncio.ensure_future(asked)
        try:
            async with asyncio.timeout(limit):
                await _first(asking, self._task)
            if not asking.done():
                raise HandLost(self._gone)
            return asking.result()
        except MCPError as error:
            # A code is the server's to choose, so it says nothing of the connection.
            if "url" in self._config and error.code in _MAY_BE_ITS_END:
                await self._look(self._client)
            if self._closing.is_set() or self._task.done():
                raise HandLost(self._gone) from None
            raise ToolError(f"the MCP server refused: {shown(error.message)}") from None
        except ValidationError as error:
            why = f"its answer is not as the protocol has it: {_brief(error)}"
            raise ToolError(f"the MCP server is at fault: {why}") from None
        except httpx2.HTTPError as error:
            raise HandLost(f"the MCP server is out of reach: {_brief(error)}") from None
        except TimeoutError:
            raise ToolError(self._said(f"the MCP server did not answer in {limit:g} s")) from None
        finally:
            if not asking.done():
                asking.cancel()  # which tells the server
                await asyncio.wait({asking}, timeout=_CANCEL_LIMIT)
            if asking.done() and not asking.cancelled():
                asking.exception()  # somebody looked

    async def _hold(self) -> None:
        try:
            async with (
                self._transport() as transport,
                Client(
                    useful(transport),
                    message_handler=self._hear,
                    client_info=Implementation(name="carpal", version=_VERSION),
                    cache=None,
                ) as client,
            ):
                # What a server promises of its structured content is between it and programs:
                # no model reads that where there is text, and the call was done.
                setattr(client.session, "validate_tool_result", _believed)  # noqa: B010
                self._ready.set_result(client)
                listening = asyncio.create_task(self._listen(client))
                await self._closing.wait()
                listening.cancel()
                await asyncio.wait({listening})
        except Exception as error:  # noqa: BLE001 - a server may end its client by anything
            self._why = _brief(error) if self._ready.done() else self._unready(error)

    def _unready(self, error: Exception) -> str:
        """Why it never was ready, in words that say what to change."""
        first = _first_of(error)
        if self._bounded is not None and self._bounded.wrong:
            return self._bounded.wrong
        if isinstance(first, MCPError) and first.code == METHOD_NOT_FOUND:
            return f"it is no MCP server: it answered {shown(first.message)}"
        if isinstance(first, FileNotFoundError):
            sees = "its image" if "image" in self._config else "its workspace and the system's /usr"
            return f"{_brief(first)}, which sees {sees} only"
        return _brief(error)

    async def _listen(self, client: Client) -> None:
        """Hear of changes where they must be asked for; most servers have no such thing."""
        listened = False
        with contextlib.suppress(Exception):
            async with client.listen(tools_list_changed=True) as subscription:
                listened = True
                async for _ in subscription:
                    self.changed = True
        if listened and not self._closing.is_set():
            await self._look(client)

    async def _look(self, client: Client) -> None:
        """It ended what was listened to: it may be gone, and whoever asks next should not wait."""
        try:
            async with asyncio.timeout(START_LIMIT):
                await client.list_tools()
        except Exception as error:  # noqa: BLE001 - whatever it is, it does not answer
            self._why = _brief(error)
            self._closing.set()

    def _over(self, why: str) -> None:
        """Nothing more comes of its program."""
        self._why = self._why or why
        self._closing.set()

    async def _hear(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.changed = True
        elif isinstance(message, Exception):
            self._wrong += 1

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        if url := self._config.get("url"):
            # By the forwarder alone, also where an address would be taken to be near.
            proxy = os.environ.get("http_proxy") or None
            self._bounded = bounded = Bounded(
                httpx2.AsyncHTTPTransport(proxy=proxy, trust_env=False)
            )
            limits = httpx2.Timeout(_HTTP_LIMIT, read=None)
            async with httpx2.AsyncClient(
                transport=bounded, trust_env=False, timeout=limits
            ) as http:
                yield streamable_http_client(url, http_client=http, max_sse_event_size=MOST)
            return
        self._program = program = Program(self._over)
        await program.start(self._config["command"], _environment(self._config))
        try:
            yield streams(program)
        finally:
            await program.end()

    def _said(self, why: str) -> str:
        """Why it is of no use, with its own last words."""
        tail = self._program.tail if self._program else b""
        lines = plain(tail.decode("utf-8", "replace")).strip().splitlines()[-_LINES:]
        if self._wrong:
            why += f"; {self._wrong} lines on its standard output were no messages"
        if lines:
            why += "; the last that it wrote on its standard error:\n" + "\n".join(lines)
        return why


async def _believed(_name: str, _result: object) -> None:
    return


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    """What the server gets: what its config says, and of ours what is no matter of this process."""
    # A Python that hears of none of these was started without; then they are an image's.
    ours = () if sys.flags.isolated else _OURS
    usual = {name: text for name, text in os.environ.items() if name not in ours}
    return {**usual, **config.get("env", {})}


async def _first(*waited: asyncio.Future[Any]) -> None:
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _brief(error: BaseException) -> str:
    """The first thing that failed."""
    error = _first_of(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename} in the hand"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'it'}: {error.strerror}"
    return f"{type(error).__name__}: {error}".removesuffix(": ")[:1000]
