"""Renewing an identity: at half-life, with jitter, for as long as it takes.

A new key and its certificate are saved beside the current ones and connected
with, and only then take their place. Whatever fails on the way, what was there
stays and is tried with again; it is never given up because something else
failed. Who signs, and what connecting means, is the caller's.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.backoff import Backoff
from carpal.errors import CarpalError, refuse
from carpal.fault_points import point
from carpal.identity import Identity, verified_identity
from carpal.pending import Pending
from carpal.status import Reason
from carpal.tls import Held, IdentityFiles, Loaded, Shown, key_pem

log = logging.getLogger(__name__)

_JITTER = 0.1
"""Of the time to half-life: a fleet enrolled in one minute does not renew in one."""
_LOOK = 60.0
"""Seconds between looks at the clock: a timer stands still while the machine sleeps."""
_LAST = timedelta(minutes=10)
"""Before its end, what is renewed is shown even if it cannot be saved."""
_ASKED_AGAIN = 3600.0
"""Seconds for which a request without an answer is sent again; then a new one is made."""
_FIRST_WAIT = 1.0
"""The longest wait, in seconds, after a first attempt that failed; each is twice the one before."""
_SOON = 30.0
"""The longest wait, in seconds, between attempts once the certificate is nearly over."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What whoever signs gave."""

    chain: bytes
    """PEM, leaf first."""
    bundle: bytes
    """PEM of every CA to trust, already believed by who asked."""
    server_time: datetime | None = None
    """The clock of who answered."""


Ask = Callable[[Loaded, bytes], Awaitable[Answer]]
"""Sends a certificate request (PKCS #10, DER) with the proof of the identity that is renewed."""
Connect = Callable[[Shown], Awaitable[None]]
"""Connects with a new identity; raises when that is refused, or nobody answers."""


def utc_now() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


def due(identity: Identity, now: datetime, spread: float) -> timedelta:
    """How long until half of its life is over; `spread` in [-1, 1] moves that by a tenth."""
    half = (identity.not_after - identity.not_before) / 2
    return max(timedelta(0), identity.not_before + half * (1 + _JITTER * spread) - now)


def checked(answer: Answer, key: ec.EllipticCurvePrivateKey, now: datetime) -> Loaded:
    """The identity that came back: of a CA we trust, for our key, and valid here.

    Raises IDENTITY_INVALID, or CLOCK_WRONG with both clocks.
    """
    try:
        leaf = x509.load_pem_x509_certificate(answer.chain)
        start, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        at = max(start, min(now, end - timedelta(seconds=1)))
        identity = verified_identity(answer.chain, answer.bundle, at)
    except (ValueError, x509.InvalidVersion):
        raise not_ours("it is not a certificate") from None
    except CarpalError as error:
        raise not_ours(error.message) from None
    if leaf.public_key() != key.public_key():
        raise not_ours("it is for another key")
    if identity.expired(now) or identity.not_yet_valid(now):
        theirs = "" if answer.server_time is None else f", {answer.server_time:%F %TZ} there"
        raise refuse(
            Reason.CLOCK_WRONG,
            f"the certificate that came back is valid from {start:%F %TZ} to {end:%F %TZ}, "
            f"and it is {now:%F %TZ} here{theirs}",
        )
    return Loaded(key, key_pem(key), answer.chain, answer.bundle, identity)


def not_ours(why: str) -> CarpalError:
    """What came back is refused."""
    return refuse(Reason.IDENTITY_INVALID, f"the certificate that came back is not ours: {why}")


class Renewal:
    """Keeps one identity renewed."""

    def __init__(
        self,
        files: IdentityFiles,
        ask: Ask,
        connect: Connect,
        *,
        now: Callable[[], datetime] = utc_now,
        backoff: Backoff | None = None,
        look: float = _LOOK,
    ) -> None:
        """`look` is the seconds between looks at the clock `now`."""
        self._files = files
        self._ask = ask
        self._connect = connect
        self._now = now
        self._backoff = backoff or Backoff(first=_FIRST_WAIT, cap=900.0)
        self._look = look
        self._unsaved: Held | None = None
        self._connected = 0
        """Serial number of the last certificate that was connected with."""
        self._hurried = asyncio.Event()

    def shown(self) -> Shown:
        """What to dial with: the files, or what could not be saved to them."""
        return self._unsaved or self._files

    def hurry(self) -> None:
        """Renew now, and until that works: the certificate is over, say, or another CA signs."""
        self._hurried.set()

    async def run(self) -> NoReturn:
        """Renew whenever it is time, until cancelled."""
        wanted = False
        while True:
            try:
                if not wanted:
                    await self.until_due(random.uniform(-1, 1))  # noqa: S311 - jitter
                wanted = True  # also if it was hurried, and is half over only in hours
                self._hurried.clear()
                renewed = await self.renew()
            except (CarpalError, OSError) as error:
                log.warning("not renewed", extra={"why": str(error)})
                await self._rest()
            except Exception:  # whoever signs has faults of its own; nobody else renews
                log.exception("not renewed")
                await self._rest()
            else:
                log.info("renewed", extra={"expires": renewed.not_after.isoformat()})
                self._backoff.works()
                wanted = False

    async def renew(self) -> Identity:
        """Get the next certificate for a new key, by proof of the old one, which may have expired.

        What another renewed while this waited for its turn is not renewed again. Raises what
        asking, connecting or saving raises; then what was there stays.
        """
        before = self._serial()
        async with self._files.writing_in_turn():
            if before is not None and before != self._serial():
                return self._files.load().identity
            old = self._files.load()
            unsaved = self._unsaved
            if unsaved is not None and not self._is_due(unsaved.identity()):
                self._save(unsaved.loaded)
                return unsaved.identity()
            pending = self._pending(old)
            new = await self._signed(old, pending)
            candidate = self._stage(old, new)
            point("identity.renewal.staged")
            if self._connected != new.identity.serial:
                await self._connect(candidate)
                self._connected = new.identity.serial
            point("identity.renewal.connected")
            if isinstance(candidate, Held):
                self._unsaved = candidate
                raise OSError("renewed, but there is no room to save it; it is used unsaved")
            self._files.promote()
            self._unsaved = None
            pending.forget()
            point("identity.renewal.done")
            return new.identity

    async def until_due(self, spread: float = 0.0) -> None:
        """Wait until half of its life is over, looking at the clock again and again."""
        while left := due(self.shown().identity(), self._now(), spread).total_seconds():
            if await self._hurried_within(min(left, self._look)):
                return

    async def _signed(self, old: Loaded, pending: Pending) -> Loaded:
        point("identity.renewal.before_asked")
        answer = await self._ask(old, pending.request)
        point("identity.renewal.answered")
        new = checked(answer, pending.key, self._now())
        if new.identity.uri != old.identity.uri:
            raise not_ours(f"it is for {new.identity.uri}")
        return new

    def _pending(self, old: Loaded) -> Pending:
        name = f"renewal-{old.identity.serial:x}"
        try:
            pending = Pending.of(self._files.directory, name, _ASKED_AGAIN)
        except OSError:
            if not self._nearly_over(old.identity):
                raise
            return Pending.in_memory()
        point("identity.renewal.pending")
        return pending

    def _stage(self, old: Loaded, new: Loaded) -> Shown:
        try:
            return self._files.stage(new.key_pem, new.chain, new.ca)
        except OSError:
            if not self._nearly_over(old.identity):
                raise
            return Held(new)

    def _save(self, unsaved: Loaded) -> None:
        self._files.stage(unsaved.key_pem, unsaved.chain, unsaved.ca)
        self._files.promote()
        self._unsaved = None

    def _serial(self) -> int | None:
        """Of the certificate on disk; None when there is none that can be read."""
        try:
            return self._files.identity().serial
        except CarpalError:
            return None

    def _is_due(self, identity: Identity) -> bool:
        return not due(identity, self._now(), 0.0)

    def _nearly_over(self, identity: Identity) -> bool:
        return self._now() >= self._last_moment(identity)

    def _last_moment(self, identity: Identity) -> datetime:
        return identity.not_after - min(_LAST, (identity.not_after - identity.not_before) / 10)

    async def _rest(self) -> None:
        """Wait for the next attempt, and not past the moment when it becomes urgent."""
        wait = self._backoff.next()
        try:
            left = (self._last_moment(self.shown().identity()) - self._now()).total_seconds()
            wait = min(wait, left if left > 0 else _SOON)
        except CarpalError as error:
            log.warning("identity not readable", extra={"why": str(error)})
        await self._hurried_within(wait)

    async def _hurried_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._hurried.wait()
        except TimeoutError:
            return False
        return True
