"""What an MCP server says and is told, as its client reads and writes it: messages.

A program's lines are read where the client reads: nothing is read ahead of it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import BrokenResourceError
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification, jsonrpc_message_adapter

from hands.mcp.program import Program
from hands.mcp.said import answered, mended

_HEARD = {
    "notifications/cancelled",
    "notifications/progress",
    "notifications/subscriptions/acknowledged",
    "notifications/tools/list_changed",
}
"""Notifications that are of use."""


class _Useful:
    """What a server says but for notifications of no use here, which cost its client much."""

    def __init__(self, heard: Any) -> None:
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._heard, name)

    def __aiter__(self) -> "_Useful":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            heard: SessionMessage | Exception = await self._heard.__anext__()
            said = heard.message if isinstance(heard, SessionMessage) else None
            if not isinstance(said, JSONRPCNotification) or said.method in _HEARD:
                return heard

    async def __aenter__(self) -> "_Useful":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._heard.aclose()


@asynccontextmanager
async def useful(transport: Any) -> AsyncIterator[Any]:
    """A transport without them."""
    async with transport as (heard, told):
        yield _Useful(heard), told


class _Heard:
    """What a program says, as its client reads it."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def __anext__(self) -> SessionMessage | Exception:
        if not (line := await self._program.line()):
            raise StopAsyncIteration
        try:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                message = jsonrpc_message_adapter.validate_json(
                    answered(mended(line)), by_name=False
                )
        except ValueError as error:
            return error
        return SessionMessage(message)

    async def aclose(self) -> None:
        """Its program is ended by who started it."""


class _Told:
    """What it is told."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def __aenter__(self) -> "_Told":
        return self

    async def __aexit__(self, *error: object) -> None:
        """Its program is ended by who started it."""

    async def aclose(self) -> None:
        """As above."""

    async def send(self, item: SessionMessage) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await self._program.write(line.encode())
        except OSError:
            raise BrokenResourceError from None


@asynccontextmanager
async def streams(program: Program) -> AsyncIterator[Any]:
    """A program as a transport."""
    yield _Heard(program), _Told(program)
