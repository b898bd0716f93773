"""The grant of one drive: bought with the lease's ticket, renewed while it goes on, then revoked.

A ticket is good for the lease's first term, and what it bought is renewed with it for as long as
somebody asks. A vault that was restarted has given none: then only a new lease's ticket helps, and
the drive ends for the next to begin (`Anew`).
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brain import servers
from brain.mcp.proxy import Proxy
from brain.session.driver import Anew, Driver
from carpal.backoff import Backoff
from carpal.client import rpc_errors
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.status import Reason
from carpal.v1 import vault_pb2 as pb

if TYPE_CHECKING:
    from carpal.v1 import vault_pb2_grpc

log = logging.getLogger(__name__)

AUDIENCE = "mcp"
RENEW = 300.0
"""Seconds between renewals: a third of a grant's life."""
_LIMIT = 5.0
"""Seconds that the vault has to answer."""
_REVOKE = 1.0
"""Seconds that the end of a drive waits for its grant to end: it ends by itself too."""
NOT_THERE = frozenset({
    Reason.VAULT_UNAVAILABLE, Reason.VAULT_SEALED, Reason.UNAVAILABLE, Reason.AUDIT_NOT_WRITTEN,
})  # fmt: skip
"""What a vault says that may answer soon."""


@dataclass
class Door:
    """The vault, as a brain's drives use it."""

    stub: "vault_pb2_grpc.VaultAsyncStub"
    proxy: Proxy
    doubted: float = 0.0
    """When it took a grant for none last. It forgets who is refused too often, and all of a
    restarted vault's are none: so after one refusal each drive asks for its grant again."""


def is_away(error: CarpalError) -> bool:
    """Whether the vault may answer soon."""
    return isinstance(error, Unreachable) or error.reason in NOT_THERE


class SessionGrant:
    """Of one drive."""

    def __init__(self, driver: Driver, door: Door | None, *, renew: float = RENEW) -> None:
        """`renew`: seconds between renewals."""
        self._driver = driver
        self._renew = renew
        self._known = door
        self._began = time.monotonic()
        self._asking = asyncio.Lock()
        self._id = ""
        self._token = ""
        self._since = 0.0
        """When the token was given, or renewed."""

    @property
    def proxy(self) -> Proxy:
        """Where the token is good."""
        return self._door.proxy

    @property
    def _door(self) -> Door:
        if self._known is None:
            raise refuse(Reason.VAULT_UNAVAILABLE, "this brain knows no vault")
        return self._known

    async def token(self) -> str:
        """One that is good as far as anybody knows.

        Raises Anew when a ticket that is over does not buy one, STALE_EPOCH, and why there is none.
        """
        async with self._asking:
            agent = self._driver.transcript.agent
            wanted = servers.grant_id(agent)
            stale = self._since <= self._door.doubted or wanted != self._id
            # Whoever keeps it asks when it is just due.
            if stale or time.monotonic() - self._since >= self._renew * 0.9:
                await self._ask(wanted)
            return self._token

    def doubt(self, token: str) -> None:
        """The proxy took this one for none: it is asked for again before it is used again."""
        if token == self._token:
            self._door.doubted = time.monotonic()

    async def keep(self) -> None:
        """Have it, and renew it; runs until cancelled."""
        backoff = Backoff(1.0, 30.0)
        while True:
            wait = self._renew
            try:
                await self.token()
                backoff.works()
            except Anew:
                wait = backoff.next()  # for whoever needs it; that may be nobody
            except CarpalError as error:
                if error.reason is Reason.STALE_EPOCH:
                    raise
                log.info("no grant", extra=self._about(error))
                wait = backoff.next()
            await asyncio.sleep(wait)  # until it is to be renewed, or tried again

    async def revoke(self) -> None:
        """End it, if there is one: nothing of this drive is asked any more."""
        if not self._token:
            return
        ask = pb.RevokeSessionRequest(ticket=self._driver.lease.ticket, audience=AUDIENCE)
        try:
            with rpc_errors("the vault"):
                await self._door.stub.RevokeSession(ask, timeout=_REVOKE)
        except CarpalError as error:
            log.info("grant not revoked", extra=self._about(error))

    async def _ask(self, wanted: str) -> None:
        agent = self._driver.transcript.agent
        ask = pb.GrantSessionRequest(
            ticket=self._driver.lease.ticket,
            grant_id=wanted,
            bound_to=self._door.proxy.identity.uri,
            audience=AUDIENCE,
            policy=servers.policy(agent),
            vault_ids=servers.vaults(agent),
        )
        self._driver.check_lease()
        asked = time.monotonic()
        try:
            with rpc_errors("the vault"):
                answer = await self._door.stub.GrantSession(ask, timeout=_LIMIT)
        except CarpalError as error:
            if error.reason is Reason.STALE_EPOCH:
                await self._driver.check_refusal()
            if error.reason is Reason.TICKET_REFUSED and self._over():
                raise Anew("the vault gives no grant for a ticket that is over") from None
            raise
        self._id, self._token, self._since = wanted, answer.grant, asked

    def _over(self) -> bool:
        """Whether the ticket is of an earlier term than this one: another lease brings another."""
        return time.monotonic() - self._began > self._driver.lease.term

    def _about(self, error: CarpalError) -> dict[str, str]:
        return {"session": self._driver.session_id, "error": str(error)}
