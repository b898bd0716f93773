"""One hand that is an MCP server: its tools, listed once, and its answers as results."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from hands.api import Context, ToolError
from hands.inside.output import compose
from hands.mcp.content import rendered
from hands.mcp.listing import Listing, listing
from hands.mcp.server import Server
from hands.mcp.words import word
from hands.plugins.hosted import Hosted

LISTED = "tools"
"""Name of what the call that makes a hand attaches."""
_WHOLE_MAX = 64 * 1024
"""Bytes of a text that a result holds whole; a longer one is cut there, and output besides."""
_MESSAGE_MAX = 500
"""Characters of what a server says of its progress."""
_LEFT_OUT_MAX = 10
_CHANGED = (
    "[the MCP server says that its tools have changed; this hand keeps those that it was made with]"
)


class Mcp(Hosted):
    """An MCP server."""

    def __init__(self) -> None:
        self._listing = Listing()
        self._told = False
        self._calls = 0

    async def make(self, config: Mapping[str, Any], context: Context) -> str:
        """Connect, and list the tools."""
        print("starting the MCP server" if config.get("command") else "connecting to the server")  # noqa: T201 - progress
        self._server = Server(config)
        await self._server.connect()
        self._listing = listing(await self._server.tools())
        left_out = self._listing.left_out
        more = f"; and {len(left_out) - _LEFT_OUT_MAX} more" * (len(left_out) > _LEFT_OUT_MAX)
        without = f"Left out of its tools: {'; '.join(left_out[:_LEFT_OUT_MAX])}{more}."
        if not self._listing.tools:
            raise ToolError(f"the MCP server has no tools. {without if left_out else ''}".strip())
        context.attach(json.dumps(self._listing.tools).encode(), "application/json", LISTED)
        self._watching = asyncio.create_task(self._watch())
        note = f"An MCP server with {len(self._listing.tools)} tools."
        return f"{note} {without}" if left_out else note

    async def _watch(self) -> None:
        """A server that dies between calls is a lost hand all the same."""
        why = await self._server.ended()
        if not self._calls:
            self.lose(why)

    async def call(self, name: str, given: Mapping[str, Any], context: Context) -> str:
        """Ask the server."""

        def progress(done: float, total: float | None, message: str | None) -> None:
            of = f"/{total:g}" if total else ""
            context.say(f"[{done:g}{of}] {word(message, _MESSAGE_MAX)}".rstrip() + "\n")

        self._calls += 1
        try:
            result = await self._server.call(self._listing.names[name], given, progress)
        finally:
            self._calls -= 1
        text, attached = rendered(result)
        for each in attached:
            context.attach(*each)
        if self._server.changed and not self._told:
            self._told = True
            text = compose(text, _CHANGED[1:-1])
        if result.get("isError"):
            raise ToolError(text)
        if (size := len(text.encode("utf-8", "replace"))) > _WHOLE_MAX:
            # By itself, for who watches has heard of its progress.
            context.say(f"[the answer, {size} bytes]\n{text}\n[the end of the answer]\n")
        return text

    async def release(self) -> None:
        """End the server."""
        if hasattr(self, "_watching"):
            self._watching.cancel()
        if hasattr(self, "_server"):
            await self._server.close()
