"""Channels: dial a peer over mutual TLS and say in words when it fails."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TypeVar

import grpc

from carpal.errors import CarpalError, from_status, refuse
from carpal.following import FollowingChannel
from carpal.identity import Role, server_name
from carpal.loop_watch import the_one_loop
from carpal.proxy import Proxy, channel_options, decided
from carpal.rpc import status_pb2
from carpal.status import Reason
from carpal.tls import IdentityFiles, Shown, channel_credentials

SENT_IN_STREAMS = {
    "carpal.v1.Session": ("Append", "ImportSession", "PutBlob"),
    "carpal.v1.Orchestrator": ("Connect", "Attach", "Enter", "WriteBlob"),
    "carpal.v1.Hand": ("Tunnel",),
}
"""RPCs whose requests are a stream."""


def _retries() -> str:
    """What gRPC asks again by itself: whatever one request asks for, and no stream of them.

    Every mutation carries a caller-chosen id, so asking again after UNAVAILABLE is safe. Of a
    stream gRPC would repeat what it holds of it while more is written, and was seen to lose a
    message of it; who writes one opens it anew.
    """
    policy = {
        "maxAttempts": 3,
        "initialBackoff": "0.05s",
        "maxBackoff": "1s",
        "backoffMultiplier": 3,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    streams = [
        {"service": service, "method": method}
        for service, methods in SENT_IN_STREAMS.items()
        for method in methods
    ]
    methods = [{"name": streams}, {"name": [{}], "retryPolicy": policy}]
    return json.dumps({"methodConfig": methods})


_RETRY = _retries()

MESSAGE_BYTES = 4 * 1024 * 1024 + 64 * 1024
"""The largest frame (4 MiB) and its envelope."""


def _keepalive(silence_ms: int, answer_ms: int) -> list[tuple[str, int]]:
    """Ping what is silent for so long, and give it up when no answer comes for so long."""
    return [
        ("grpc.keepalive_time_ms", silence_ms),
        ("grpc.keepalive_timeout_ms", answer_ms),
        # Without it a frozen peer is noticed after 70 s, whatever the timeout says.
        ("grpc.http2.ping_timeout_ms", answer_ms),
        # The default (2) stops pings on a silent stream, and with them liveness.
        ("grpc.http2.max_pings_without_data", 0),
    ]


KEEPALIVE = _keepalive(30_000, 10_000)
"""Of daemons and operators: they are many and far away, and a link has heartbeats of its own."""

_BETWEEN_SERVERS = [
    *_keepalive(2_000, 5_000),
    # Also while nothing is asked: the next request would be what finds out.
    ("grpc.keepalive_permit_without_calls", 1),
]
"""A session stands still while the way to its hand or its log is half open, and its lease lasts
10 s. A pause of some seconds is no dead path. The answer to a ping comes behind what its socket
holds already: a path that needs more than 5 s for that, some MB at below 1 MB/s, counts as dead."""

_CONNECT_MS = 20_000
"""Thousands of daemons that dial one brain at once are let in in turns of a millisecond or two
each. What gives up halfway has wasted its turn, and dials again."""

Call = TypeVar("Call", bound=grpc.aio.Call)

_BROKE = ("Internal error from Core", "Stream removed")
"""What grpc says, under INTERNAL or UNKNOWN, of a stream that ended while something was written
to it, and of all on a connection whose bytes did not arrive as they were sent."""


@asynccontextmanager
async def dial(
    address: str,
    role: Role,
    shown: Shown,
    *,
    retry: bool = True,
    proxy: Proxy | None = None,
    follow: bool = True,
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a peer that must prove it has `role`.

    With `follow`, RPCs that begin after the identity was renewed go over a new
    connection made with it; else this is one connection. Does not wait for it.
    Variables that name proxies count for nothing here: `proxy` alone does.
    """
    me = shown.identity()
    patient = me.role in (Role.DAEMON, Role.OPERATOR)
    options: list[tuple[str, object]] = [
        *(KEEPALIVE if patient else _BETWEEN_SERVERS),
        ("grpc.ssl_target_name_override", server_name(role, me.trust_domain)),
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Despite its name, the time that a connection and its handshake have, however long the
        # backoff: three round trips must fit on any path.
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
    ]
    if retry:
        options.append(("grpc.service_config", _RETRY))

    def dialled() -> grpc.aio.Channel:
        return open_channel(address, channel_credentials(shown), options, proxy)

    opened = dialled
    if follow and isinstance(shown, IdentityFiles):
        opened = partial(FollowingChannel, shown, dialled)
    async with opened() as channel:
        yield channel


def open_channel(
    address: str,
    credentials: grpc.ChannelCredentials,
    options: list[tuple[str, object]],
    proxy: Proxy | None,
) -> grpc.aio.Channel:
    """A channel straight to an address, or by that proxy, whatever gRPC would choose."""
    the_one_loop()
    with decided():
        return grpc.aio.secure_channel(
            address, credentials, options=[*options, *channel_options(proxy)]
        )


async def connected(channel: grpc.aio.Channel) -> None:
    """Until the channel has its connection, or failed to get one: then the next RPC says why.

    What counts from the start of an RPC does not count the way to its peer with it.
    """
    state = channel.get_state(try_to_connect=True)
    while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


@contextmanager
def held(call: Call) -> Iterator[Call]:
    """An RPC of streams while the block lasts; what is left before its end is cancelled.

    A call object that is merely dropped stays alive, on both ends.
    """
    try:
        yield call
    finally:
        call.cancel()


@contextmanager
def rpc_errors(peer: str) -> Iterator[None]:
    """Turn a failed RPC into the CarpalError behind it; `peer` says who was asked."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc(error, peer) from None


def from_rpc(error: grpc.RpcError, peer: str) -> CarpalError:
    """The error behind a failed RPC; `peer` says who was asked, in words."""
    if not isinstance(error, grpc.aio.AioRpcError):
        raise error
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            data = value if isinstance(value, bytes) else value.encode()
            return from_status(status_pb2.Status.FromString(data))
    details = error.details() or ""
    if details.startswith(_BROKE):
        return refuse(Reason.UNREACHABLE, f"{peer} does not answer (the connection broke)")
    wrapped = from_status(status_pb2.Status(code=error.code().value[0], message=details))
    if wrapped.reason is Reason.UNREACHABLE:
        if _REFUSED.match(details):
            return refuse(Reason.UNREACHABLE, f"{peer} closes connections", action=_IF_IT_RUNS)
        for sign, (why, action) in _NO_WAY.items():
            if sign in details:
                return refuse(Reason.UNREACHABLE, f"{peer} {why}", action=action)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            details = "no answer in time"
        return refuse(Reason.UNREACHABLE, f"{peer} does not answer ({_brief(details)})")
    return wrapped


_REFUSED = re.compile(r"failed to connect .*(Socket closed|Connection reset by peer)\Z", re.DOTALL)
"""TLS has no words for a client's certificate that is refused: the server hangs up."""
_IF_IT_RUNS = (
    "check that it runs; if it does, it refuses the certificate used here, perhaps as its "
    "authority was retired: ask `carpal hand diagnose`, or `carpal vault ca status` on the vault's "
    "machine"
)
_CHECK_BOTH = (
    "check the address, and that the identity is of the same vault; if the authority was replaced "
    "while this machine was away, it needs a new token (`carpal fleet token`), a server "
    "`carpal vault issue`"
)
_NO_WAY = {
    "HTTP proxy returned response code 407": (
        "cannot be reached: the HTTP proxy asks for a user and a password",
        "put them into the proxy's URL, http://USER:PASSWORD@HOST:PORT",
    ),
    "HTTP proxy returned response code": (
        "cannot be reached: the HTTP proxy refuses the way there",
        "have the proxy allow CONNECT to that address and port",
    ),
    "certificate has expired": (
        "shows a certificate that has expired",
        "check this machine's clock, and whether what listens there could reach the vault to renew",
    ),
    "certificate is not yet valid": (
        "shows a certificate that is not valid yet",
        "check the clocks of both machines",
    ),
    "CERTIFICATE_VERIFY_FAILED": (
        "shows a certificate that is not by the authority (ca.pem) of the identity used here",
        _CHECK_BOTH,
    ),
    "Hostname Verification Check failed": (
        "shows a certificate of another role or trust domain",
        _CHECK_BOTH,
    ),
    "WRONG_VERSION_NUMBER": ("does not speak TLS", "check the address"),
}
"""What gRPC's detail says of a way or handshake that failed → that in words, and what to do."""


def _brief(details: str) -> str:
    """gRPC's detail without its list of every address it tried."""
    return details.rsplit(": ", 1)[-1][:160] if details else "no detail"
