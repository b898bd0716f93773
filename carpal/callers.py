"""The streams that are open, and for how long their callers may have them.

TLS asks who somebody is once, at the handshake. So every stream is held to its
caller's certificate while it lasts: it ends when that expires or is revoked;
and when the server stops, with a word about it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from carpal.errors import CarpalError, refuse
from carpal.identity import Identity
from carpal.revocations import Revocations
from carpal.status import Reason

_LOOK = 5.0
"""Seconds between looks at the clock: a timer stands still while the machine sleeps."""
_EARLY = 60.0
"""At most so many seconds before its certificate's end a stream is ended as one that may be
opened again: by then its caller has the next, and no call is lost for it. What is opened
later than that lasts until the end itself."""


@dataclass(eq=False, slots=True)
class _Open:
    identity: Identity
    limit: asyncio.Timeout
    why: CarpalError | None = None


class Callers:
    """Who is calling one server, and may."""

    def __init__(self, revocations: Revocations) -> None:
        self._revocations = revocations
        self._open: set[_Open] = set()
        self._left = asyncio.Event()
        """Set whenever a stream ended."""
        self._stopping = False
        revocations.on_change(self.look)

    def check(self, identity: Identity) -> None:
        """CERTIFICATE_EXPIRED or IDENTITY_REVOKED unless its certificate is good now."""
        now = datetime.now(UTC)
        if identity.expired(now) or identity.not_yet_valid(now):
            raise refuse(
                Reason.CERTIFICATE_EXPIRED,
                f"the certificate of {identity.uri} is valid from {identity.not_before:%F %TZ} "
                f"to {identity.not_after:%F %TZ}",
            )
        self._revocations.check(identity)

    @asynccontextmanager
    async def held(
        self, identity: Identity | None, *, to_the_end: bool = False
    ) -> AsyncIterator[None]:
        """Around a stream's handler: cancels it, and raises why, once its caller may not go on.

        None is a caller without a certificate, where none is asked for. With `to_the_end` it goes
        on as long as the certificate: it has an end of its own, and cannot be opened again.
        """
        if identity is None:
            yield
            return
        if self._stopping:
            raise _stops()
        left = (identity.not_after - datetime.now(UTC)).total_seconds()
        early = 0.0 if to_the_end else left - _margin(identity)
        ending = None if early <= 0 else _ending()
        one = _Open(identity, asyncio.timeout(left if early <= 0 else early), ending)
        self._open.add(one)
        try:
            async with one.limit:
                yield
        except TimeoutError:
            if not one.limit.expired():
                raise
            raise one.why or _expired() from None
        finally:
            self._open.discard(one)
            self._left.set()

    async def leave(self, grace: float) -> None:
        """The server stops: take no stream any more, and end what is left in `grace` seconds."""
        self._stopping = True
        try:
            async with asyncio.timeout(grace):
                while self._open:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            for one in list(self._open):
                _end(one, _stops())

    def look(self) -> None:
        """End the streams whose callers may not go on."""
        for one in list(self._open):
            try:
                self.check(one.identity)
            except CarpalError as error:
                over = error.reason is Reason.CERTIFICATE_EXPIRED
                _end(one, _expired() if over else error)

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            self.look()


def _end(one: _Open, why: CarpalError) -> None:
    if not one.limit.expired():
        one.why = why
        one.limit.reschedule(asyncio.get_running_loop().time())


def _margin(identity: Identity) -> float:
    """Seconds before its end at which a certificate's streams are moved to its successor's."""
    return min(_EARLY, (identity.not_after - identity.not_before).total_seconds() / 20)


def _ending() -> CarpalError:
    return refuse(Reason.CERTIFICATE_ENDING, "the client certificate of the stream ends soon")


def _stops() -> CarpalError:
    return refuse(
        Reason.UNAVAILABLE, "this server stops", action="open it again, here or elsewhere"
    )


def _expired() -> CarpalError:
    return refuse(Reason.CERTIFICATE_EXPIRED, "the client certificate expired during the stream")
