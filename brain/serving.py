"""uvicorn as a part of a process: it says when it serves, and leaves signals alone."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

_KEEP_ALIVE = 300
"""Seconds an idle connection stays; longer than clients keep theirs, so that none is
closed under a request that is just being sent."""
_GRACE = 1
"""Seconds a stopping server gives running answers."""


def serve() -> dict[str, Any]:
    """What every server of ours has set in its `uvicorn.Config`."""
    return {
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "timeout_keep_alive": _KEEP_ALIVE,
        "timeout_graceful_shutdown": _GRACE,
    }


class Server(uvicorn.Server):
    """Stops on an event."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.stop = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.up.set()

    async def main_loop(self) -> None:
        """Wait: uvicorn's own wakes ten times a second, for a date header we do not send."""
        await self.stop.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield
