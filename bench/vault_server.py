"""An MCP server in a process of its own, made with the `mcp` package or as lean as one can be.

Run by the bench of the vault: it says its port, and serves until its standard input ends. The lean
one answers from a table, so that a rate is the vault's and not the server's; it also has a tool
whose result never fits.
"""

import asyncio
import json
import logging
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.tls_ca import Authority
from tests.vault.mcp.servers import Server
from tests.vault.mcp.world import CANARY, HOST, served
from vault.mcp.wire import MODERN

HUGE = 200_000_000
"""Bytes of the result that does not fit."""
_PART = b"x" * 65_536
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
_ANSWERS: dict[str, Any] = {
    "server/discover": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}},
    "tools/list": {
        "tools": [
            {"name": name, "description": "A tool.", "inputSchema": _SCHEMA}
            for name in ("add", "huge")
        ]
    },
    "tools/call": {"content": [{"type": "text", "text": "5"}]},
}


class _Lean(asyncio.Protocol):
    """One connection, a request at a time."""

    def __init__(self) -> None:
        self._came = b""
        self._writing: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._out = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._writing is not None:
            self._writing.cancel()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (end := self._came.find(b"\r\n\r\n")) >= 0:
            head = self._came[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._came) < end + 4 + size:
                return
            body, self._came = self._came[end + 4 : end + 4 + size], self._came[end + 4 + size :]
            good = f"authorization: bearer {CANARY}".lower().encode() in head
            self._answer(json.loads(body), good)

    def _answer(self, asked: Any, good: bool) -> None:
        if not good:
            self._out.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        elif asked["params"].get("name") == "huge":
            self._writing = asyncio.create_task(self._huge(asked["id"]))
        else:
            result = {"resultType": "complete", **_ANSWERS[asked["method"]]}
            reply = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
            self._out.write(_head(len(reply)) + reply)

    async def _huge(self, request_id: int) -> None:
        before = (
            b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % request_id
        )
        after = b'"}]}}'
        self._out.write(_head(len(before) + HUGE // len(_PART) * len(_PART) + len(after)) + before)
        for _ in range(HUGE // len(_PART)):
            await self._room.wait()
            self._out.write(_PART)
        self._out.write(after)


def _head(size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size


@asynccontextmanager
async def _lean(certificate: Path, key: Path) -> AsyncIterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Lean, "127.0.0.1", 0, ssl=context)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


class _Issued(Authority):
    """A certificate that is there."""

    def __init__(self, folder: Path) -> None:  # the authority itself is another process's
        self.folder = folder

    def issue(self, name: str) -> tuple[Path, Path]:
        """Its files."""
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"


async def _main(kind: str, folder: Path) -> None:
    logging.disable(logging.WARNING)
    issued = _Issued(folder)
    serving = _lean(*issued.issue(HOST)) if kind == "lean" else served(issued, Server(CANARY))
    async with serving as port:
        print(json.dumps({"port": port}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2])))
