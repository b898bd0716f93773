"""The guard: one request to somebody else's server, and its reply without secrets.

It is told the parts of a request and builds it anew, looks the host up once, dials a checked
address, speaks HTTP/1.1 under verified TLS, and follows, repeats and obeys nothing: no redirect, no
retry, no variable of the environment. What a reply may cost in time and memory is bounded.
"""

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Collection, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpcore2

from vault.guard.addresses import AddressRule, Network
from vault.guard.errors import BadRequest, BodyTooLarge
from vault.guard.headers import KEPT, Headers, Slot, outgoing
from vault.guard.lanes import Lanes
from vault.guard.limits import Limits
from vault.guard.network import GuardedBackend, MachineRule, Resolver, SystemResolver, tls_context
from vault.guard.response import Response
from vault.guard.targets import Target
from vault.guard.wire import ERRORS, Sending
from vault.redact.stream import Patterns
from vault.redact.under_way import hidden
from vault.secret import Secret

_METHOD = re.compile(r"[A-Z]{1,16}")
_NO_METHODS = {"CONNECT", "TRACE"}
"""One makes a tunnel of the connection; the other answers with what was sent, secrets and all."""
_NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be sent. It prints as its method and host: all the rest may hold secrets."""

    method: str
    target: Target
    headers: Headers = ()
    """Names and values; a secret is in a `Slot`, and is then looked for in the reply."""
    body: bytes | AsyncIterable[bytes] = b""
    length: int | None = field(default=None, kw_only=True)
    """Of a body that comes in parts, when it is known; it must then be exactly so long."""

    def __repr__(self) -> str:
        return f"Request({self.method} {self.target})"


class Guard:
    """The one way out. Closed with `aclose`, or left as an async context."""

    def __init__(
        self,
        *,
        rule: AddressRule | None = None,
        resolver: Resolver | None = None,
        authorities: str | None = None,
    ) -> None:
        """`authorities`: certificates, as PEM, trusted beside those of this machine."""
        self._rule = rule or MachineRule()
        self._resolver = resolver or SystemResolver()
        self._tls = tls_context(authorities)
        self._lanes = Lanes(self._pool)

    @asynccontextmanager
    async def send(
        self,
        request: Request,
        *,
        secrets: Iterable[Secret] = (),
        limits: Limits = _NO_LIMITS,
        private: tuple[Network, ...] = (),
        wanted: Collection[str] = KEPT,
        lane: Hashable = None,
    ) -> AsyncIterator[Response]:
        """Send a request; the reply is there once its head is. GuardError says what went wrong.

        `secrets` are struck out of the reply, beside those in slots: those of the body, and the
        others that this server might know. `private` are networks that the credential allows.
        `wanted` are the headers of the reply that the caller needs, by name in lower case.
        Requests of the same `lane` may share a connection one after another; make it of the grant
        and the credential's generation. Without one the connection is for this request alone.
        """
        slots = [value.secret for _, value in request.headers if isinstance(value, Slot)]
        try:
            patterns = Patterns([*secrets, *slots])
        except ValueError:
            raise BadRequest(part="secret") from None
        deadline = asyncio.get_running_loop().time() + limits.total
        sending = Sending(limits, deadline)
        wire = _wire(request, sending, limits)
        settings = (private, limits.connect, limits.kept)
        key = None if lane is None else (lane, *settings)
        with hidden(patterns):
            async with self._lanes.pool(key, settings) as pool:
                head = await self._head(pool, wire, sending)
                try:
                    response = Response(
                        head,
                        target=request.target,
                        patterns=patterns,
                        limits=limits,
                        deadline=deadline,
                        wanted=wanted,
                    )
                    try:
                        yield response
                    finally:
                        await response.aclose()
                finally:
                    await head.aclose()

    async def forget(self, lane: Hashable) -> None:
        """Close what a lane keeps: its grant or its credential is no more."""
        await self._lanes.forget(lane)

    async def aclose(self) -> None:
        """Close what is kept."""
        await self._lanes.aclose()

    async def __aenter__(self) -> "Guard":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _head(
        self, pool: httpcore2.AsyncConnectionPool, wire: httpcore2.Request, sending: Sending
    ) -> httpcore2.Response:
        timer = sending.timer()
        try:
            async with timer:
                return await pool.handle_async_request(wire)
        except TimeoutError:
            if not timer.expired():
                raise  # of the body's source, which is the caller's
            raise sending.late() from None
        except ERRORS as error:
            raise sending.failed(error) from None

    def _pool(
        self, private: tuple[Network, ...], connect: float, kept: float
    ) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._tls,
            max_connections=None,  # whoever asks has its own bound
            max_keepalive_connections=8,
            keepalive_expiry=kept,
            http1=True,
            http2=False,
            retries=0,
            network_backend=GuardedBackend(self._rule, self._resolver, private, connect),
        )


def _wire(request: Request, sending: Sending, limits: Limits) -> httpcore2.Request:
    """The request as the library takes it. BadRequest and BodyTooLarge come before any dialling."""
    if not _METHOD.fullmatch(request.method) or request.method in _NO_METHODS:
        raise BadRequest(part="method")
    headers = outgoing(request.headers)
    target, body, length = request.target, request.body, request.length
    if isinstance(body, bytes):
        length = len(body)
        body = _once(body)
    if length is not None and length > limits.request_bytes:
        raise BodyTooLarge(limit="request_bytes", allowed=limits.request_bytes)
    if length is None:
        framing = [(b"Transfer-Encoding", b"chunked")]
    elif length or request.method not in {"GET", "HEAD", "DELETE", "OPTIONS"}:
        framing = [(b"Content-Length", str(length).encode())]
    else:
        framing = []
    return httpcore2.Request(
        request.method,
        httpcore2.URL(scheme="https", host=target.host, port=target.port, target=target.path),
        headers=[
            (b"Host", target.authority.encode()),
            (b"Accept-Encoding", b"identity"),
            *headers,
            *framing,
        ],
        content=sending.body(body, length),
        extensions={"trace": sending.traced},
    )


async def _once(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body
