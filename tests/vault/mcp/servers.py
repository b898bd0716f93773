"""Real MCP servers, made with the `mcp` package, that ask for a bearer token and note what came."""

import asyncio
import warnings
from dataclasses import dataclass, field
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel

from vault.mcp.wire import MODERN


class Age(BaseModel):
    """What a person is asked."""

    years: int


@dataclass
class Server:
    """One server, and what it was asked."""

    token: str
    legacy: bool = False
    """Whether it speaks only the protocol of before."""
    name: str = "strange"
    seen: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request."""
    methods: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mcp = MCPServer(self.name)
        tool = self.mcp.tool

        @tool()
        def add(a: int, b: int) -> CallToolResult:
            """Add two numbers."""
            self.added.append(a + b)
            return text(str(a + b))

        @tool()
        def echo(what: str) -> CallToolResult:
            """Say it again."""
            return text(what)

        @tool()
        def many(size: int) -> CallToolResult:
            """A long text."""
            return text("x" * size)

        @tool()
        def fails() -> CallToolResult:
            """Fail."""
            return CallToolResult(content=text("it went wrong").content, is_error=True)

        @tool()
        def leaks(context: Context) -> CallToolResult:
            """What the server was told of who asks."""
            assert context.request_context.request is not None
            return text(str(dict(context.request_context.request.headers)))

        @tool()
        async def slow(context: Context) -> str:
            """Go on for long, and say so."""
            self.began.set()
            try:
                for step in range(600):
                    await context.report_progress(step, 600, f"step {step}")
                    await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "done"

        @tool()
        async def asks(context: Context) -> str:
            """Ask for all that a client may have."""
            for question in (
                lambda: context.elicit("How old?", Age),
                lambda: context.session.create_message(
                    [], max_tokens=9, related_request_id=context.request_id
                ),
            ):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # two of them are as good as gone
                        self.told.append(f"given {await question()!r}")
                except Exception as error:  # noqa: BLE001 - whatever it is told
                    self.told.append(f"refused {type(error).__name__}")
            return "asked"

        self.app = self.mcp.streamable_http_app(host="0.0.0.0")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.seen.append(headers)
        self.methods.append(scope["method"])
        if headers.get("authorization") != f"Bearer {self.token}":
            await said(send, 401, b"who?")
            return
        if self.legacy and headers.get("mcp-protocol-version") == MODERN:
            await said(send, 400, b"unsupported protocol version")
            return

        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])
            await send(message)

        await self.app(scope, receive, noted)


def text(what: str) -> CallToolResult:
    """A result."""
    return CallToolResult(content=[TextContent(type="text", text=what)])


async def said(send: Any, status: int, body: bytes, kind: bytes = b"text/plain") -> None:
    """A whole answer."""
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
