"""Serving HTTPS over mutual TLS: every request's caller is held to its certificate.

TLS checks a certificate once, at the handshake. So its dates, its revocation and its role are
checked at every request, and what goes on ends when the certificate does, is revoked, or the
caller hangs up. Nothing that a handler raises reaches a caller.
"""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from carpal.authz import may_ask
from carpal.callers import Callers
from carpal.errors import CarpalError, refuse
from carpal.revocations import Revocations
from carpal.server import check_address
from carpal.status import Code, Reason
from carpal.tls import IdentityFiles
from vault.http.connection import Connection, Link, Peers
from vault.http.exchange import Exchange, Gone, Receive, Send, TooLarge
from vault.http.gate import HEAD_MAX
from vault.http.tls import following_context

_log = logging.getLogger(__name__)

Handler = Callable[[Exchange], Awaitable[None]]

EACH, TOGETHER = 256, 1024
"""Connections of one caller, and of all."""
_AT_ONCE = 512
"""Requests that are answered at a time."""
_IDLE = 60
"""Seconds that a connection may ask nothing between two requests."""
_HANDSHAKE = 5.0
_GRACE = 2.0
"""Seconds that a stopping server gives requests."""
_BACKLOG = 512
_STATUS = {Code.UNAUTHENTICATED: 401, Code.PERMISSION_DENIED: 403, Code.UNAVAILABLE: 503}


@asynccontextmanager
async def serve_https(
    listen: str,
    files: IdentityFiles,
    listener: str,
    handler: Handler,
    *,
    revocations: Revocations | None = None,
) -> AsyncIterator[str]:
    """Serve a listener of `carpal.authz` until the block ends; gives `host:port` as bound.

    Raises ADDRESS_IN_USE when the port is taken, and as `IdentityFiles.load_valid`.
    """
    check_address(listen, "listen")
    host, _, port = listen.rpartition(":")
    callers = Callers(revocations or Revocations())
    config = Config(
        _Guard(listener, handler, callers),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=_AT_ONCE,
        timeout_keep_alive=_IDLE,
        h11_max_incomplete_event_size=2 * HEAD_MAX,
    )
    config.load()
    for name in ("uvicorn", "h11"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters of it, we log ourselves
    state, peers = ServerState(), Peers(EACH, TOGETHER)
    loop = asyncio.get_running_loop()
    context = following_context(files)  # what OpenSSL says is an OSError too, and of no address
    try:
        server = await loop.create_server(
            lambda: Connection(config, state, {}, peers),
            host.strip("[]"),
            int(port),
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE,
            backlog=_BACKLOG,
        )
    except OSError:
        raise refuse(
            Reason.ADDRESS_IN_USE, f"cannot listen on {listen}: in use, or not an address here"
        ) from None
    looking = asyncio.create_task(callers.run())
    try:
        yield f"{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        looking.cancel()
        server.close()
        await _stop(state, callers)


async def _stop(state: ServerState, callers: Callers) -> None:
    for connection in list(state.connections):
        connection.shutdown()
    try:
        await callers.leave(_GRACE)
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_GRACE)
    finally:
        for task in list(state.tasks):
            task.cancel()
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()


class _Guard:
    """The ASGI application: checks who asks, and holds what goes on to it."""

    def __init__(self, listener: str, handler: Handler, callers: Callers) -> None:
        self._listener = listener
        self._handler = handler
        self._callers = callers

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        link: Link = scope["state"]["link"]
        exchange = Exchange(link.caller, scope, receive, send)
        hung_up = asyncio.timeout(None)
        loop = asyncio.get_running_loop()

        def lost() -> None:
            if not hung_up.expired():
                hung_up.reschedule(loop.time())

        try:
            try:
                self._check(link)
                async with self._callers.held(link.caller, to_the_end=True), hung_up:
                    link.lost = lost
                    if link.gone:
                        raise Gone
                    try:
                        await self._handler(exchange)
                    finally:
                        link.lost = None
            except CarpalError as error:
                await _say(exchange, link, _STATUS.get(error.code, 500), error.name)
            except TooLarge:
                await _say(exchange, link, 413, "MESSAGE_TOO_LARGE")
            except (Gone, TimeoutError):
                if not hung_up.expired():
                    raise
        except Exception as error:  # noqa: BLE001 - the one top-level boundary of a request
            # Its words may hold what the log may not.
            extra = {"kind": type(error).__name__, "at": _place(error)}
            _log.error("a request failed", extra=extra)
            await _say(exchange, link, 500, "INTERNAL")
        if exchange.begun and not exchange.ended:
            link.cut()

    def _check(self, link: Link) -> None:
        self._callers.check(link.caller)
        if not may_ask(self._listener, link.caller.role):
            raise refuse(Reason.ROLE_NOT_ALLOWED, f"role {link.caller.role} may not ask here")


def _place(error: BaseException) -> str:
    """The line of code that raised it."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}"


async def _say(exchange: Exchange, link: Link, status: int, reason: str) -> None:
    """Why it is refused, if nothing was said yet; else the answer ends where it is."""
    if exchange.begun:
        link.cut()
        return
    await exchange.answer_json(status, {"error": {"reason": reason}})
