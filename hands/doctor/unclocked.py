"""A brain's enrolment port, asked whatever this machine's clock says.

A machine whose clock is wrong finds every certificate expired, or not yet valid, and so cannot ask
anybody what time it is. Here who answers must hold the key of a brain's certificate by an authority
that is trusted, and only its dates are not looked at: a clock that such a one tells is worth more
than one that is in doubt. gRPC always looks at dates, so TLS is Python's, and gRPC speaks over a
socket of our own. What is asked so changes nothing.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc

from carpal.identity import Role, server_name
from carpal.loop_watch import the_one_loop
from carpal.proxy import Proxy
from carpal.v1 import enrollment_pb2_grpc
from hands.doctor.threads import in_thread
from hands.presented import connection

_NO_DATES = 0x200000
"""`X509_V_FLAG_NO_CHECK_TIME` of OpenSSL, which Python's `ssl` does not name."""
_HANDSHAKE = 10.0
_PIECE = 64 * 1024


@asynccontextmanager
async def asking(
    address: str, trust_domain: str, ca: bytes, proxy: Proxy | None
) -> AsyncIterator["enrollment_pb2_grpc.EnrollmentAsyncStub"]:
    """The enrolment port at `host:port`, over one connection. Raises OSError, CarpalError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca.decode("ascii"))
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_DATES)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    raw = await in_thread(lambda: connection(address, proxy))
    try:
        raw.setblocking(False)
        reader, writer = await asyncio.open_connection(
            sock=raw,
            ssl=context,
            server_hostname=server_name(Role.BRAIN, trust_domain),
            ssl_handshake_timeout=_HANDSHAKE,
        )
    except BaseException:
        raw.close()
        raise
    try:
        async with _spoken_over(reader, writer) as stub:
            yield stub
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def _spoken_over(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator["enrollment_pb2_grpc.EnrollmentAsyncStub"]:
    the_one_loop()
    passing: list[asyncio.Task[None]] = []
    ends: list[asyncio.StreamWriter] = []
    over = False

    def come(mine: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        ends.append(out)
        if passing or over:  # there is one connection, and no second one to the brain
            out.transport.abort()
            return
        passing.append(asyncio.create_task(_pass(mine, writer)))
        passing.append(asyncio.create_task(_pass(reader, out)))

    with tempfile.TemporaryDirectory(prefix="carpal-doctor-") as folder:
        path = Path(folder, "s")
        server = await asyncio.start_unix_server(come, str(path))
        try:
            options = [("grpc.enable_http_proxy", 0)]
            async with grpc.aio.insecure_channel(f"unix:{path}", options=options) as channel:
                yield enrollment_pb2_grpc.EnrollmentStub(channel)
        finally:
            server.close()
            over = True
            for task in passing:
                task.cancel()
            await asyncio.gather(*passing, return_exceptions=True)
            for end in ends:
                end.transport.abort()
            await asyncio.sleep(0)  # in which they are closed


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_PIECE):
            target.write(data)
            await target.drain()
    target.close()
