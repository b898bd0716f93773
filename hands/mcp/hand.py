"""One hand that is an MCP server: its tools, listed once, and its answers as results."""

import json
from collections.abc import Mapping
from typing import Any

from hands.api import Context, ToolError
from hands.inside.output import compose
from hands.mcp.content import rendered
from hands.mcp.listing import Listing, listing
from hands.mcp.server import Server
from hands.plugins.hosted import Hosted

LISTED = "tools"
"""Name of what the call that makes a hand attaches."""
_WHOLE_MAX = 64 * 1024
"""Bytes of a text that a result holds whole; a longer one is output, and cut as all output is."""
_LEFT_OUT_MAX = 10
_CHANGED = (
    "[the MCP server says that its tools have changed; this hand keeps those that it was made with]"
)


class Mcp(Hosted):
    """An MCP server."""

    def __init__(self) -> None:
        self._listing = Listing()
        self._told = False

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
        note = f"An MCP server with {len(self._listing.tools)} tools."
        return f"{note} {without}" if left_out else note

    async def call(self, name: str, given: Mapping[str, Any], context: Context) -> str | None:
        """Ask the server."""

        def progress(done: float, total: float | None, message: str | None) -> None:
            of = f"/{total:g}" if total else ""
            context.say(f"[{done:g}{of}] {message or ''}".rstrip() + "\n")

        result = await self._server.call(self._listing.names[name], given, progress)
        text, attached = rendered(result)
        for each in attached:
            context.attach(*each)
        if self._server.changed and not self._told:
            self._told = True
            text = compose(text, _CHANGED[1:-1])
        if result.get("isError"):
            raise ToolError(text)
        if len(text.encode("utf-8", "replace")) > _WHOLE_MAX:
            context.say(text)
            return None
        return text

    async def release(self) -> None:
        """End the server."""
        if hasattr(self, "_server"):
            await self._server.close()
