"""Which certificates a server shows, before anything is trusted.

For enrolment: a token pins the CA, so the chain is read first and the CA in it
compared; and for `carpal hand doctor`, which says who issued what is shown.
Nothing is sent over the connection that reads it.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence

from cryptography import x509

from carpal.errors import CarpalError, refuse
from carpal.proof import ca_pin
from carpal.proxy import Proxy, by
from carpal.status import Reason

_TIMEOUT = 10.0
"""Seconds for the connection and for the handshake, each."""
_HEAD_MAX = 16 * 1024
"""Bytes of a proxy's answer."""
_DER = 2  # `_ssl.ENCODING_DER`, for the private objects of Python before 3.13


async def pinned_chain(
    address: str, pins: Sequence[bytes], proxy: Proxy | None = None
) -> tuple[list[x509.Certificate], x509.Certificate]:
    """The chain shown at `host:port`, leaf first, and the CA in it that a pin names.

    Nothing of it is verified yet: the caller does that, with the CA. Raises
    UNREACHABLE, or CA_MISMATCH when no certificate shown has a pin.
    """
    chain = await asyncio.to_thread(presented, address, proxy)
    for certificate in chain:
        if ca_pin(certificate) in pins:
            shown = [x509.load_der_x509_certificate(der) for der in chain]
            return shown, x509.load_der_x509_certificate(certificate)
    raise refuse(
        Reason.CA_MISMATCH,
        f"{address} shows another certificate authority than the token names",
    )


def presented(address: str, proxy: Proxy | None) -> list[bytes]:
    """The chain of the handshake at `host:port`, DER, leaf first; UNREACHABLE without one.

    Blocks, a bounded time.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is trusted yet; see the first lines
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])  # gRPC servers refuse a handshake without
    try:
        with (
            connection(address, proxy) as raw,
            context.wrap_socket(raw) as secure,
        ):
            return _chain(secure)
    except ssl.SSLError as error:
        raise _unreachable(address, proxy, f"no TLS: {error.reason or error}") from None
    except OSError as error:
        raise _unreachable(address, proxy, error.strerror or str(error)) from None


def connection(address: str, proxy: Proxy | None) -> socket.socket:
    """TCP to `host:port`. Raises OSError, or UNREACHABLE with what a proxy answers.

    Blocks, a bounded time.
    """
    host, _, port = (proxy.address if proxy else address).rpartition(":")
    raw = socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT)
    if proxy is None:
        return raw
    try:
        raw.sendall(proxy.connect(address))
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _HEAD_MAX:
            # A byte at a time: what follows the head belongs to the handshake.
            if not (more := raw.recv(1)):
                break
            head += more
        if head.split(b" ", 2)[1:2] != [b"200"]:
            status = head.split(b"\r\n", 1)[0].decode("ascii", "replace")[:80]
            raise _unreachable(address, proxy, f"it answers {status!r}")
    except BaseException:
        raw.close()
        raise
    return raw


def _chain(secure: ssl.SSLSocket) -> list[bytes]:
    # Public from Python 3.13 on, as DER; before, the same call is only on the
    # private object behind the socket, and gives objects. The public calls of
    # 3.11 know the leaf alone, and the pin is of the CA.
    if hasattr(secure, "get_unverified_chain"):
        return [bytes(der) for der in secure.get_unverified_chain()]
    private = getattr(secure, "_sslobj")  # noqa: B009 - not in the type stubs
    return [bytes(shown.public_bytes(_DER)) for shown in private.get_unverified_chain() or ()]


def _unreachable(address: str, proxy: Proxy | None, why: str) -> CarpalError:
    message = f"the brain at {address} cannot be reached{by(proxy)} ({why})"
    return refuse(Reason.UNREACHABLE, message)
