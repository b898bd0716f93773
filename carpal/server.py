"""Serving: mutual TLS, who is calling, refusals as statuses, a clean stop.

Every RPC passes `_Guard`: TLS is checked only at the handshake, so dates, role
and revocation are re-checked here from the peer certificate, and a stream ends
when its certificate does.
"""

import asyncio
import inspect
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from carpal.authz import allowed, open_to_anyone
from carpal.callers import Callers
from carpal.client import MESSAGE_BYTES
from carpal.errors import CarpalError, invalid, refuse, to_status
from carpal.health import Health
from carpal.identity import Identity, identity_of
from carpal.loop_watch import the_one_loop
from carpal.process import only_error
from carpal.revocations import Revocations
from carpal.rpc import health_pb2_grpc
from carpal.status import Reason

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
DETAILS = "grpc-status-details-bin"
"""The trailer that holds a `google.rpc.Status`, by gRPC's richer error model."""
_CODES = {code.value[0]: code for code in grpc.StatusCode}
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
else:
    Handler = grpc.RpcMethodHandler  # generic only in its stubs
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # This end pings too, and gives up who does not answer within 40 s. The other server that
    # dialled notices sooner, and dials anew.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Other servers ping every 2 s and everyone else every 30 s, with or without calls; and a busy
    # stream makes a client's gRPC ping to measure the path. However many pings come, that is no
    # abuse: a default server answers "too many pings" after three, and cuts the caller off.
    ("grpc.http2.max_ping_strikes", 0),
    # Beyond 1,000 RPCs that wait to be taken, gRPC cancels some at random: a burst of tails,
    # or of daemons, would lose a part of itself without a word.
    ("grpc.server.max_pending_requests", 50_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    # Two servers on one port would share its traffic silently.
    ("grpc.so_reuseport", 0),
]
_GRACE = 2.0
"""Seconds a stopping server gives running RPCs."""


def caller(context: Context) -> Identity:
    """Who is calling, from the peer certificate; IDENTITY_INVALID without one."""
    for pem in context.auth_context().get("x509_pem_cert", ()):
        return identity_of(pem)
    raise refuse(Reason.IDENTITY_INVALID, "no client certificate was presented")


def _not_built(self: object, request: object, context: object) -> None:
    raise NotImplementedError


not_built: Any = _not_built
"""For an RPC of the contract that this server does not offer yet: NOT_BUILT."""


@dataclass(frozen=True)
class Server:
    """A server that serves."""

    address: str
    """`host:port` as bound."""


@asynccontextmanager
async def serve(
    listen: str,
    credentials: grpc.ServerCredentials,
    register: Callable[[grpc.aio.Server], None],
    *,
    authorize: bool = True,
    drain: Callable[[], Awaitable[None]] | None = None,
    revocations: Revocations | None = None,
) -> AsyncIterator[Server]:
    """Serve on `listen` until the block ends, then stop with a short grace.

    `drain` comes before that, to tell those who hold streams; it must bound itself. What
    streams are left when the grace is over end as UNAVAILABLE, to be opened again.

    `authorize=False` is for the enrolment port, whose callers have no
    certificate yet. Who is in `revocations` is refused, and its streams end as
    soon as it is. ADDRESS_IN_USE when the port is taken.
    """
    the_one_loop()
    check_address(listen, "listen")
    callers = Callers(revocations or Revocations())
    guard = _Guard(callers, authorize=authorize)
    server = grpc.aio.server(interceptors=[guard], options=_OPTIONS)
    register(server)
    health = Health()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    try:
        port = server.add_secure_port(listen, credentials)
    except RuntimeError:
        raise refuse(
            Reason.ADDRESS_IN_USE, f"cannot listen on {listen}: in use, or not an address here"
        ) from None
    await server.start()
    looking = asyncio.create_task(callers.run())
    try:
        yield Server(f"{listen.rpartition(':')[0]}:{port}")
    finally:
        looking.cancel()
        health.leave()
        try:
            if drain is not None:
                await drain()
            await callers.leave(_GRACE)
        finally:
            await server.stop(_GRACE)


@asynccontextmanager
async def serve_locally(
    path: Path, register: Callable[[grpc.aio.Server], None]
) -> AsyncIterator[None]:
    """Serve on a unix socket until the block ends: no TLS and no roles.

    Whoever may open the socket may ask anything; its folder decides who that is.
    ADDRESS_IN_USE when it cannot be there.
    """
    the_one_loop()
    server = grpc.aio.server(interceptors=[_OpenToAll()], options=_OPTIONS)
    register(server)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError:
        raise refuse(Reason.ADDRESS_IN_USE, f"cannot listen on {path}") from None
    await server.start()
    try:
        yield
    finally:
        await server.stop(_GRACE)


def check_address(value: str, field: str) -> str:
    """`value`, or INVALID_FIELD when it is not `host:port`; port 0 is any free one."""
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise invalid(field, f"{value!r} is not host:port, as in 127.0.0.1:7440")
    return value


class _Guard(grpc.aio.ServerInterceptor):
    """Checks the caller of every RPC and turns what handlers raise into statuses."""

    def __init__(self, callers: Callers, *, authorize: bool) -> None:
        self._callers = callers
        self._authorize = authorize

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        if handler.response_streaming:
            return self._streaming(handler, method)
        return self._unary(handler, method)

    def _unary(self, handler: Any, method: str) -> Handler:
        inner = handler.stream_unary if handler.request_streaming else handler.unary_unary
        read = _reader(handler, method)

        async def behave(request: Any, context: Context) -> Any:
            try:
                identity = self._check(method, context)
                if not handler.request_streaming:
                    return await inner(read(request), context)
                async with self._callers.held(identity):
                    return await inner(request, context)
            except Exception as error:  # noqa: BLE001 - the one top-level boundary of an RPC
                await _abort(method, context, error)

        make = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        # One request is read where what is wrong with it has its answer; gRPC has none.
        return make(
            behave, read if handler.request_streaming else None, handler.response_serializer
        )

    def _streaming(self, handler: Any, method: str) -> Handler:
        inner = handler.stream_stream if handler.request_streaming else handler.unary_stream
        read = _reader(handler, method)

        async def behave(request: Any, context: Context) -> None:
            try:
                async with self._callers.held(self._check(method, context)):
                    if not handler.request_streaming:
                        request = read(request)
                    if inspect.isasyncgenfunction(inner):
                        async with aclosing(inner(request, context)) as responses:
                            async for response in responses:
                                await context.write(response)
                    else:
                        await inner(request, context)
            except Exception as error:  # noqa: BLE001 - the one top-level boundary of an RPC
                await _abort(method, context, error)

        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return make(
            behave, read if handler.request_streaming else None, handler.response_serializer
        )

    def _check(self, method: str, context: Context) -> Identity | None:
        """Refuse the caller, or say who it is; None where nobody is asked for a certificate."""
        if not self._authorize:
            if not open_to_anyone(method):
                raise refuse(Reason.ROLE_NOT_ALLOWED, "this port serves enrolment only")
            return None
        identity = caller(context)
        self._callers.check(identity)
        if not allowed(method, identity.role):
            raise refuse(
                Reason.ROLE_NOT_ALLOWED,
                f"role {identity.role} may not call {method.removeprefix('/carpal.v1.')}",
                method=method,
                role=identity.role,
            )
        return identity


class _OpenToAll(_Guard):
    """Turns what handlers raise into statuses; asks nobody who they are."""

    def __init__(self) -> None:
        super().__init__(Callers(Revocations()), authorize=False)

    def _check(self, method: str, context: Context) -> Identity | None:
        return None


_LINK = ("/Connect", "/Attach")


def _reader(handler: Any, method: str) -> Callable[[bytes], Any]:
    """Reads what a caller sent.

    What is no message of the contract is the caller's fault: LINK_VIOLATION on a link's streams,
    INVALID_FIELD elsewhere.
    """
    reason = Reason.LINK_VIOLATION if method.endswith(_LINK) else Reason.INVALID_FIELD

    def read(data: bytes) -> Any:
        if handler.request_deserializer is None:
            return data  # as gRPC has it: the handler takes bytes
        try:
            return handler.request_deserializer(data)
        except DecodeError:
            problem = f"{len(data)} bytes came that are no message of the contract"
            raise refuse(reason, problem) from None

    return read


async def _abort(method: str, context: Context, raised: Exception) -> None:
    error = only_error(raised)
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, grpc.aio.InternalError):
        # What was written met a stream that its caller had left.
        log.debug("a caller left", extra={"method": method, "problem": str(error)})
        raise error
    if isinstance(error, NotImplementedError):
        error = refuse(Reason.NOT_BUILT, f"{method.rpartition('/')[2]} is not built yet")
    if not isinstance(error, CarpalError):
        incident = uuid.uuid4().hex[:12]
        log.error("internal error", exc_info=error, extra={"method": method, "incident": incident})
        error = refuse(
            Reason.INTERNAL, f"internal error {incident}", action=f"find {incident} in the log"
        )
    await abort(context, error)


async def abort(context: Context, error: CarpalError) -> None:
    """End a call with a refusal: its code, its line, and its fields where gRPC has such."""
    status = to_status(error)
    trailer = ((DETAILS, status.SerializeToString()),)
    await context.abort(_CODES[status.code], status.message, trailer)
