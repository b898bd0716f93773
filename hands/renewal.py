"""Renewing the daemon's certificate: at half-life, with jitter, for as long as it takes.

The link is not cut for it: the next dial uses the new one, and a brain ends a
stream when its certificate does. A valid certificate is never given up because
a renewal failed.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from grpc_health.v1 import health_pb2, health_pb2_grpc

from carpal.backoff import Backoff
from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError, Unreachable
from carpal.identity import Identity, Role
from carpal.tls import IdentityFiles
from hands.enroll import Links, Probe, links_path, renew

log = logging.getLogger(__name__)

_JITTER = 0.1
"""Of the time to half-life: a fleet enrolled in one minute does not renew in one."""
_LOOK = 60.0
"""Seconds between looks at the clock: a timer stands still while the machine sleeps."""
_PROBE_LIMIT = 10.0
"""Seconds for a brain to answer to the candidate certificate."""


def due(identity: Identity, now: datetime, spread: float) -> timedelta:
    """How long until half of its life is over; `spread` in [-1, 1] moves that by a tenth."""
    half = (identity.not_after - identity.not_before) / 2
    return max(timedelta(0), identity.not_before + half * (1 + _JITTER * spread) - now)


async def until_due(
    identity: Identity, now: Callable[[], datetime], spread: float = 0.0, look: float = _LOOK
) -> None:
    """Wait for that, looking at the clock every `look` seconds."""
    while left := due(identity, now(), spread).total_seconds():  # noqa: ASYNC110 - it is a clock
        await asyncio.sleep(min(left, look))


async def keep_renewed(files: IdentityFiles) -> None:
    """Renew whenever it is time, until cancelled."""
    backoff = Backoff(first=30.0, cap=900.0)
    while True:
        spread = random.uniform(-1, 1)  # noqa: S311 - jitter
        await until_due(files.identity(), lambda: datetime.now(UTC), spread)
        try:
            links = Links.load(links_path(files.directory))
            renewed = await renew(files.directory, links.enrollment, _probe(links))
            log.info("renewed", extra={"expires": renewed.identity.not_after.isoformat()})
            backoff.reset()
        except CarpalError as error:
            log.warning("not renewed", extra={"why": str(error)})
            await asyncio.sleep(backoff.next())


def _probe(links: Links) -> Probe:
    """Connects with the candidate to the first brain that answers at all."""

    async def probe(candidate: IdentityFiles) -> None:
        failure: CarpalError | None = None
        for address in links.brains:
            try:
                await _greet(address, candidate)
            except Unreachable as error:
                failure = error
            else:
                return
        if failure is not None:
            raise failure

    return probe


async def _greet(address: str, candidate: IdentityFiles) -> None:
    async with dial(address, Role.BRAIN, candidate, retry=False) as channel:
        with rpc_errors(f"the brain at {address}"):
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=_PROBE_LIMIT)
