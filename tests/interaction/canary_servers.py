"""Somebody's MCP servers that give back the token they were shown, spelled in every way."""

import base64
import html
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult

from tests.vault.mcp.servers import said, text
from tests.vault.oauth.server import Login


def spelled(token: str) -> list[str]:
    """A token as a server may write it: what the redactor must know, said without its help."""
    raw = token.encode()
    every = [token, json.dumps(token), html.escape(token)]
    every += [
        raw.hex(),
        raw.hex().upper(),
        "%" + raw.hex("%"),
        quote(token, safe=""),
        quote_plus(token),
    ]
    for before in (b"", b"\x01", b"\x01\x02"):
        every.append(base64.b64encode(before + raw).decode())
        every.append(base64.urlsafe_b64encode(before + raw + b"~").decode())
    return every


class Repeats:
    """The ASGI application of one; `good` says whether it takes a token."""

    def __init__(self, good: Callable[[str], bool]) -> None:
        self.shown: list[str] = []
        """Each token that was shown, good or not."""
        self.calls = 0
        self._good = good
        self._mcp = MCPServer("repeats")

        @self._mcp.tool()
        def repeats(context: Context) -> CallToolResult:
            """Say who asks, as often as it can be said."""
            self.calls += 1
            assert context.request_context.request is not None
            token = context.request_context.request.headers["authorization"].removeprefix("Bearer ")
            told = text("\n".join(spelled(token)))
            told.structured_content = {"headers": {"authorization": token}, token: spelled(token)}
            return told

        self._app = self._mcp.streamable_http_app(host="0.0.0.0")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            token = headers.get("authorization", "").removeprefix("Bearer ")
            self.shown.append(token)
            if not self._good(token):
                await said(send, 401, f"not {token}: {spelled(token)}".encode())
                return
        await self._app(scope, receive, send)


class MarkedLogin(Login):
    """An authorization server each of whose tokens has a mark in it, and that may take one back."""

    mark = ""

    def refresh_token(self, client_id: str) -> str:
        """Another one."""
        token = super().refresh_token(client_id)
        kept = self.live.pop(token)
        kept.token = f"{token}{self.mark}"
        self.live[kept.token] = kept
        return kept.token

    def access_token(self) -> str:
        """Another one."""
        self.access.append(super().access_token() + self.mark)
        return self.access[-1]

    def takes(self, token: str) -> bool:
        """Only the newest."""
        return token == self.access[-1]
