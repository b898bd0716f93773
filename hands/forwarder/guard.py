"""From a host that a rule allows to a connection: the name is resolved once, and that is dialled.

A name may lead anywhere, to this machine or into its network, and elsewhere the
next time it is asked for. So every address it has is looked at, and one that is
not public is dialled only when a rule names that very address.
"""

import asyncio
import ipaddress
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress

from hands.forwarder import hosts
from hands.forwarder.heads import Refused

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a name, as text. Raises OSError when there are none."""

RESOLVE_LIMIT = 5.0
"""Seconds for a name to be resolved."""
CONNECT_LIMIT = 10.0
"""Seconds for a connection, over all addresses."""
_QUESTIONS = 8
"""Names of one hand that are being resolved at once."""
_ADDRESSES = 8
"""Addresses of a name that are tried."""


class Resolver:
    """What this machine's resolver says, to one hand: it has so many questions open at once.

    A name server that a hand chose may never answer, and a question cannot be
    taken back: its thread waits on, and only that hand does.
    """

    def __init__(self, ask: Callable[[str, int], list[str]] | None = None) -> None:
        self._ask = ask or ask_system
        self._room = asyncio.Semaphore(_QUESTIONS)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of `host`, as text. Raises OSError."""
        await self._room.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str]] = loop.create_future()

        def finish(found: Sequence[str] | Exception) -> None:
            self._room.release()
            if answer.done():
                return  # given up
            if isinstance(found, Exception):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def wait() -> None:
            found: Sequence[str] | Exception
            try:
                found = self._ask(host, port)
            except (OSError, UnicodeError) as error:
                found = error
            with suppress(RuntimeError):  # the daemon ended meanwhile
                loop.call_soon_threadsafe(finish, found)

        # No executor: its threads would hold up the daemon's end.
        threading.Thread(target=wait, name="resolve", daemon=True).start()
        return await answer


def ask_system(host: str, port: int) -> list[str]:
    """By the system's resolver; takes as long as that likes."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def addresses(
    host: str, port: int, allowed: Callable[[str], bool], resolve: Resolve
) -> Sequence[hosts.Address]:
    """Where `host` may be dialled; `allowed` tells whether a rule names an address.

    Raises Refused when one of its addresses may not be dialled: then none is.
    """
    given = hosts.address(host)
    texts: Sequence[str] = [str(given)] if given else await _resolve(host, port, resolve)
    found = []
    for text in dict.fromkeys(texts):
        address = hosts.address(text)
        where = f"{host} is at {text}" if given is None else host
        if address is None:
            raise Refused(403, f"{where}, which is on one link alone")
        if not allowed(str(address)):
            if not hosts.public(address):
                raise Refused(403, f"{where}, which is not public, and no rule names that address")
            if _own(address, port):
                raise Refused(403, f"{where}, which is the daemon's own machine")
        found.append(address)
    return found


async def _resolve(host: str, port: int, resolve: Resolve) -> Sequence[str]:
    try:
        async with asyncio.timeout(RESOLVE_LIMIT):
            found = await resolve(host, port)
    except TimeoutError:
        raise Refused(504, f"{host} was not resolved within {RESOLVE_LIMIT:g} s") from None
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise Refused(502, f"{host} has no address here")
    return found


def _own(address: hosts.Address, port: int) -> bool:
    """Whether it is an address of this machine: what comes from it goes to it. Sends nothing."""
    with closing(socket.socket(_family(address), socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect((str(address), port))
            return ipaddress.ip_address(str(probe.getsockname()[0])) == address
        except OSError:
            return False  # no way there; the connection will say so


async def dial(
    host: str, port: int, allowed: Callable[[str], bool], resolve: Resolve
) -> tuple[socket.socket, str]:
    """A connection to `host`, and the address it is to. Raises Refused."""
    found = await addresses(host, port, allowed, resolve)
    why = "no way there"
    try:
        async with asyncio.timeout(CONNECT_LIMIT):
            for address in found[:_ADDRESSES]:
                try:
                    return await _connected(address, port), str(address)
                except OSError as error:
                    why = os.strerror(error.errno or 0).lower()  # the loop words it otherwise
    except TimeoutError:
        why = f"no connection within {CONNECT_LIMIT:g} s"
    raise Refused(502, f"{hosts.joined(host, port)} is not reached: {why}")


async def _connected(address: hosts.Address, port: int) -> socket.socket:
    dialled = socket.socket(_family(address), socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        dialled.setblocking(False)
        await asyncio.get_running_loop().sock_connect(dialled, (str(address), port))
    except BaseException:
        dialled.close()
        raise
    return dialled


def _family(address: hosts.Address) -> socket.AddressFamily:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6
