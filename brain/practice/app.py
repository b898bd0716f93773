"""Serving the practice model on an address, with uvicorn."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from brain.practice.answer import Script
from brain.practice.server import Practice
from brain.serving import Server, serve
from carpal.errors import invalid, refuse
from carpal.process import until_stopped
from carpal.status import Reason


@dataclass(frozen=True)
class Serving:
    """A practice model that serves."""

    address: str
    """`host:port` as bound."""
    task: asyncio.Task[None]
    """Ends when the server does."""

    @property
    def url(self) -> str:
        """What ANTHROPIC_BASE_URL should say."""
        return f"http://{self.address}"


@asynccontextmanager
async def serving(
    listen: str, scripts: Sequence[Script] = (), latency: float = 0
) -> AsyncIterator[Serving]:
    """Serve on `listen` (`host:port`; port 0 takes a free one) until the block ends.

    `latency` is added before every answer, in seconds. ADDRESS_IN_USE when
    the port is taken.
    """
    async with serving_app(listen, Practice(scripts, latency)) as served:
        yield served


@asynccontextmanager
async def serving_app(listen: str, app: ASGIApp) -> AsyncIterator[Serving]:
    """The same of any application: a test's, that thinks before it answers."""
    sock = _bind(listen)
    server = Server(uvicorn.Config(app, http="h11", **serve()))
    task = asyncio.create_task(server.serve(sockets=[sock]))
    with _cuts_are_meant():
        try:
            await until_stopped(server.up, task)
            yield Serving(_address(sock), task)
        finally:
            server.stop.set()
            await task


def _bind(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise invalid("listen", f"{listen!r} is not HOST:PORT, as in 127.0.0.1:8790")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, int(port)), family=family, backlog=2048)
    except OSError as error:
        why = "in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise refuse(Reason.ADDRESS_IN_USE, f"cannot listen on {listen}: {why}") from None
    # asyncio leaves it off on what a socket of protocol 0 accepts; every event would wait 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if sock.family == socket.AF_INET6 else f"{host}:{port}"


@contextmanager
def _cuts_are_meant() -> Iterator[None]:
    """Keep uvicorn from logging a scripted cut as an error of the application."""
    log = logging.getLogger("uvicorn.error")

    def unmeant(record: logging.LogRecord) -> bool:
        return "without completing response" not in record.getMessage()

    log.addFilter(unmeant)
    try:
        yield
    finally:
        log.removeFilter(unmeant)
