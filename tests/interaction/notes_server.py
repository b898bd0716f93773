"""Somebody's MCP server that is a process: it asks for a bearer token, and its effects are lines.

`python -m tests.interaction.notes_server FOLDER CERTIFICATE KEY PORT TOKEN`; it says `ready` once
it serves. What it was told of who asks is in `seen`, what it did in `effects`; `hold` waits until
somebody writes to the pipe `go`.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, ImageContent, TextContent

from tests.vault.mcp.servers import said, text
from tests.vault.mcp.world import HOST

METADATA = "/.well-known/oauth-protected-resource/mcp"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def serve(folder: Path, certificate: str, key: str, port: int, token: str) -> None:
    """Until it is killed."""
    mcp = MCPServer("notes")
    more = folder / "description"
    note = more.read_text() if more.exists() else "Write a note down."

    def did(what: str) -> int:
        with (folder / "effects").open("a") as file:
            file.write(what + "\n")
        return len((folder / "effects").read_text().splitlines())

    @mcp.tool(description=note)
    def add(words: str) -> CallToolResult:
        return text(f"note {did(words)}")

    @mcp.tool()
    async def hold(words: str) -> CallToolResult:
        """Write a note down, and take long over it."""
        did(words)
        await asyncio.to_thread((folder / "go").read_bytes)
        return text("held")

    @mcp.tool()
    def picture() -> CallToolResult:
        """Show a picture."""
        image = ImageContent(
            type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png"
        )
        return CallToolResult(content=[TextContent(type="text", text="here"), image])

    @mcp.tool()
    def table() -> CallToolResult:
        """Answer with data alone."""
        return CallToolResult(content=[], structured_content={"rows": [1, 2]})

    @mcp.tool()
    def fails() -> CallToolResult:
        """Fail."""
        return CallToolResult(content=text("no such note").content, is_error=True)

    @mcp.tool()
    def large() -> CallToolResult:
        """A text that is too long for an event."""
        return text("begin" + "x" * 2_000_000 + "end")

    @mcp.tool(name="files.list")
    def files() -> CallToolResult:
        """A name that no model can be told as it is."""
        return text("no files")

    app = mcp.streamable_http_app(host="0.0.0.0")

    async def asked(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            with (folder / "seen").open("a") as file:
                file.write(headers.get("authorization", "none") + "\n")
            login, tokens = folder / "login", folder / "tokens"
            if login.exists() and scope["path"] == METADATA:
                resource = {"resource": f"https://{HOST}:{port}/mcp"}
                resource["authorization_servers"] = [login.read_text()]  # type: ignore[assignment]
                await said(send, 200, json.dumps(resource).encode())
                return
            taken = [token, *(tokens.read_text().split() if tokens.exists() else ())]
            if headers.get("authorization") not in [f"Bearer {each}" for each in taken]:
                await said(send, 401, b"who?")
                return
        await app(scope, receive, send)

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print("ready", flush=True)  # noqa: T201

    config = uvicorn.Config(
        asked, host="127.0.0.1", port=port, ssl_certfile=certificate, ssl_keyfile=key,
        log_config=None, access_log=False, lifespan="on", http="h11", ws="none",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    Server(config).run()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
