"""From a name to a connection: asked once, each address checked, and one of those dialled.

Between the check and the connection the name is not looked up again, so a name that answers
otherwise the second time changes nothing. One forbidden address among several refuses them all: who
serves such an answer is up to no good.
"""

import asyncio
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import anyio
import httpcore2
from httpcore2 import SOCKET_OPTION, AsyncNetworkStream

from vault.guard.addresses import Address, AddressRule, Network
from vault.guard.errors import AddressRefused, NotConnected, NotTrusted, Unresolved
from vault.guard.hosts import is_address
from vault.guard.together import Together

_DIALLED = 4
"""Addresses that are tried, one after another."""
_LOOKUPS = 32
"""At once."""
_NOBODYS = ipaddress.ip_address("192.0.2.1")
_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)


class Resolver(Protocol):
    """Finds the addresses of a name; an empty answer, or OSError, when there are none."""

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """In the order in which they are to be tried."""


class SystemResolver:
    """As this machine resolves names.

    That blocks a thread, for as long as the machine's resolver waits. So the threads are its own,
    only so many, and none keeps the process from ending.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_LOOKUPS)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses; OSError for a name without any."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def done(found: list[str], error: Exception | None) -> None:
            self._free.release()
            if answer.done():
                return  # whoever asked has gone
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(found)

        def look() -> None:
            found, failed = [], None
            try:
                told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(address[0]) for *_, address in told))
            except (OSError, UnicodeError) as error:
                failed = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(done, found, failed)

        threading.Thread(target=look, name="resolve", daemon=True).start()
        return await answer


class MachineRule(AddressRule):
    """The rule on a machine that knows its own addresses: they are loopback by other names."""

    def own(self, address: Address, port: int) -> bool:
        """Whether the machine has this address."""
        if not _binds(address):
            return False
        # Some machines may bind to what is not theirs; there the way of a packet tells.
        return not _binds(_NOBODYS) or _leads_back(address)


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Dials for one pool of connections."""

    def __init__(
        self, rule: AddressRule, resolver: Resolver, private: tuple[Network, ...], seconds: float
    ) -> None:
        self._rule = rule
        self._resolver = resolver
        self._private = private
        self._seconds = seconds
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's; the caller bounds it all
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """A connection to a checked address of the host."""
        addresses = [host] if is_address(host) else await self._resolved(host, port)
        for address in addresses:
            if why := self._rule.refusal(address, port, self._private):
                raise AddressRefused(host=host, port=port, address=address, why=why.value)
        dialled = addresses[:_DIALLED]
        for address in dialled:
            try:
                stream = await self._inner.connect_tcp(
                    address, port, timeout=self._seconds / len(dialled)
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
            return _Plain(stream, host, address)
        raise NotConnected(host=host, port=port, addresses=len(addresses))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Never: what is outside is not on a socket of this machine."""
        raise AddressRefused(why="unix_socket")

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        try:
            found = await self._resolver(host, port)
        except (OSError, UnicodeError):
            found = ()
        if not found:
            raise Unresolved(host=host)
        return found


class _Plain(AsyncNetworkStream):
    """A connection before TLS: nothing is sent on it in clear."""

    def __init__(self, inner: AsyncNetworkStream, host: str, address: str) -> None:
        self._inner = inner
        self._host = host
        self._address = address

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> AsyncNetworkStream:
        """The connection under TLS, to the host by its name; NotTrusted says what was wrong."""
        try:
            return Together(await self._inner.start_tls(ssl_context, self._host))
        except httpcore2.ConnectError as error:
            cause = error.__cause__
            if isinstance(cause, ssl.SSLCertVerificationError):
                wrong = cause.verify_message
            else:
                wrong = type(cause).__name__
            raise NotTrusted(host=self._host, address=self._address, problem=wrong) from None
        except BaseException:  # the library lets go of it only for errors: a cancelled one stays
            with anyio.CancelScope(shield=True):
                await self._inner.aclose()
            raise

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Never."""
        raise NotTrusted(host=self._host, problem="no TLS")

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Never."""
        raise NotTrusted(host=self._host, problem="no TLS")

    async def aclose(self) -> None:
        """End it."""
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        """As the connection has it."""
        return self._inner.get_extra_info(info)


def tls_context(authorities: str | None = None) -> ssl.SSLContext:
    """TLS 1.2 or later, verified by this machine's authorities and those given as PEM.

    Neither SSL_CERT_FILE, SSL_CERT_DIR nor SSLKEYLOGFILE counts: who may set a variable may not
    thereby choose whom the vault trusts, nor read what it sends.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    compiled = ssl.get_default_verify_paths()
    files = [each for each in (compiled.openssl_cafile, *_CA_FILES) if Path(each).is_file()]
    folder = compiled.openssl_capath if Path(compiled.openssl_capath).is_dir() else None
    if files or folder:
        context.load_verify_locations(files[0] if files else None, folder)
    if authorities:
        context.load_verify_locations(cadata=authorities)
    return context


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def _binds(address: Address) -> bool:
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _leads_back(address: Address) -> bool:
    """Whether a packet to it would come from it; none is sent."""
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(probe.getsockname()[0] == str(address))
    except OSError:
        return False
