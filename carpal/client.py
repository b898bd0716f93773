"""Channels: dial a peer over mutual TLS and say in words when it fails."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import grpc

from carpal.errors import from_rpc
from carpal.identity import Role
from carpal.tls import IdentityFiles, channel_credentials, server_name

_RETRY = """{"methodConfig": [{"name": [{}], "retryPolicy": {
  "maxAttempts": 3, "initialBackoff": "0.05s", "maxBackoff": "1s",
  "backoffMultiplier": 3, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"""
"""Every mutation carries a caller-chosen id, so retrying UNAVAILABLE is safe."""

MESSAGE_BYTES = 4 * 1024 * 1024 + 64 * 1024
"""The largest frame (4 MiB) and its envelope."""

KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Without it a frozen peer is noticed after 70 s, whatever the timeout says.
    ("grpc.http2.ping_timeout_ms", 10_000),
    # The default (2) stops pings on a silent stream, and with them liveness.
    ("grpc.http2.max_pings_without_data", 0),
]


@asynccontextmanager
async def dial(
    address: str, role: Role, files: IdentityFiles, *, retry: bool = True
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a peer that must prove it has `role`.

    Identity files are read anew at each dial, so a renewed certificate is
    used from the next one on. Does not wait for the connection.
    """
    options: list[tuple[str, object]] = [
        *KEEPALIVE,
        ("grpc.ssl_target_name_override", server_name(role, files.identity().trust_domain)),
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Proxies are for the daemon's dial-out alone, which says so itself.
        ("grpc.enable_http_proxy", 0),
    ]
    if retry:
        options.append(("grpc.service_config", _RETRY))
    async with grpc.aio.secure_channel(
        address, channel_credentials(files), options=options
    ) as channel:
        yield channel


@contextmanager
def rpc_errors(peer: str) -> Iterator[None]:
    """Turn a failed RPC into the CarpalError behind it; `peer` says who was asked."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc(error, peer) from None
