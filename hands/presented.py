"""Which certificates a server shows, before anything is trusted.

Only for enrolment: a token pins the CA, so the chain is read first and the
CA in it compared; nothing is sent over the connection that reads it.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence

from cryptography import x509

from carpal.errors import CarpalError, refuse
from carpal.proof import ca_pin
from carpal.status import Reason

_TIMEOUT = 10.0
"""Seconds for the connection and for the handshake, each."""
_DER = 2  # `_ssl.ENCODING_DER`, for the private objects of Python before 3.13


async def pinned_chain(
    address: str, pins: Sequence[bytes]
) -> tuple[x509.Certificate, x509.Certificate]:
    """The leaf shown at `host:port`, and the CA shown with it that a pin names.

    The leaf is not verified yet: the caller does that, with the CA. Raises
    UNREACHABLE, or CA_MISMATCH when no certificate shown has a pin.
    """
    chain = await asyncio.to_thread(_presented, address)
    for certificate in chain:
        if ca_pin(certificate) in pins:
            return x509.load_der_x509_certificate(chain[0]), x509.load_der_x509_certificate(
                certificate
            )
    raise refuse(
        Reason.CA_MISMATCH,
        f"{address} shows another certificate authority than the token names",
    )


def _presented(address: str) -> list[bytes]:
    """The chain of the handshake, DER, leaf first."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is trusted yet; see the first lines
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])  # gRPC servers refuse a handshake without
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT) as raw,
            context.wrap_socket(raw) as secure,
        ):
            return _chain(secure)
    except ssl.SSLError as error:
        raise _unreachable(address, f"no TLS: {error.reason or error}") from None
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from None


def _chain(secure: ssl.SSLSocket) -> list[bytes]:
    # Public from Python 3.13 on, as DER; before, the same call is only on the
    # private object behind the socket, and gives objects. The public calls of
    # 3.11 know the leaf alone, and the pin is of the CA.
    if hasattr(secure, "get_unverified_chain"):
        return [bytes(der) for der in secure.get_unverified_chain()]
    private = getattr(secure, "_sslobj")  # noqa: B009 - not in the type stubs
    return [bytes(shown.public_bytes(_DER)) for shown in private.get_unverified_chain() or ()]


def _unreachable(address: str, why: str) -> CarpalError:
    return refuse(Reason.UNREACHABLE, f"the brain at {address} cannot be reached ({why})")
