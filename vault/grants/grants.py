"""The grants there are: given for a lease ticket, found by a token, ended by whatever ends them.

They are in memory alone. A vault that starts has given none, and a driver whose lease is older
than its first term takes it anew to get one: what was revoked, or of a driver before, is so never
good again. All of it is called in the event loop's thread.
"""

import asyncio
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity
from carpal.ids import check_id
from carpal.status import Reason
from vault.grants.budget import Budget
from vault.grants.grant import (
    OF_BRAINS,
    Grant,
    Terms,
    digest_of,
    minted,
    servers_of,
    taken_apart,
    token_of,
)
from vault.grants.ticket import Driver, refused

LIFE = 15 * 60.0
"""Seconds that a grant is good for, from when it was last asked for."""
PER_SESSION = 64
FAILURES, FAILURES_SECONDS = 100, 60.0
_NOBODYS = digest_of("")
Denied = Callable[..., None]


@dataclass(slots=True)
class _Session:
    """What is known of a session."""

    workspace: str
    epoch: int = 0
    """The highest that a ticket had."""
    driver: str = ""
    until: float = 0.0
    """When what is known of its driver is forgotten."""
    grants: dict[str, Grant] = field(default_factory=dict)


class Grants:
    """Of one vault process: `vault.mcp.ports.Grants`."""

    def __init__(self, denied: Denied, *, life: float = LIFE) -> None:
        """`denied(action, reason, actor=…, **facts)` writes why down: the caller is not told."""
        self._denied = denied
        self._life = life
        self._key = os.urandom(32)
        self._by_id: dict[str, Grant] = {}
        self._sessions: dict[str, _Session] = {}
        self._budget = Budget(FAILURES, FAILURES_SECONDS)

    def __len__(self) -> int:
        return len(self._by_id)

    def give(self, driver: Driver, name: str, terms: Terms) -> tuple[Grant, str]:
        """A grant and its token; the same ones for the same name and terms, for longer.

        Raises TICKET_REFUSED for a ticket that is over and bought nothing in its time,
        STALE_EPOCH, ID_REUSED, INVALID_FIELD, AT_CAPACITY.
        """
        check_id(name, "grant_id")
        servers = servers_of(terms.policy) if terms.audience == OF_BRAINS else {}
        session = self.drives(driver)
        known = session.grants.get(name)
        if known is not None:
            if known.terms != terms:
                raise refuse(Reason.ID_REUSED, f"grant {name!r} exists with other content")
            self._renew(known)
            return known, self._token(known)
        if len(session.grants) >= PER_SESSION:
            raise refuse(Reason.AT_CAPACITY, f"the session has {PER_SESSION} grants")
        nonce = os.urandom(16)
        grant_id, secret = minted(self._key, name, terms, nonce)
        grant = Grant(grant_id, name, terms, servers, digest_of(secret), nonce)
        session.grants[name] = self._by_id[grant_id] = grant
        self._renew(grant)
        return grant, self._token(grant)

    def drives(self, driver: Driver) -> _Session:
        """Believe a ticket: what a driver before it was given as a brain ends.

        Raises TICKET_REFUSED and STALE_EPOCH.
        """
        now = asyncio.get_running_loop().time()
        self._forget(now)
        session = self._sessions.get(driver.session)
        if session is not None and driver.epoch < session.epoch:
            raise refuse(Reason.STALE_EPOCH, "another brain drives the session by now")
        known = session is not None and (session.epoch, session.driver) == (
            driver.epoch,
            driver.uri,
        )
        if not driver.fresh and not known:
            raise refused("it is over")
        if session is None:
            session = self._sessions[driver.session] = _Session(driver.workspace)
        if driver.epoch > session.epoch:
            session.epoch, session.driver = driver.epoch, driver.uri
            for grant in list(session.grants.values()):
                if grant.terms.audience == OF_BRAINS:
                    self._end(grant)
        session.until = now + self._life
        return session

    def revoke(
        self, session_id: str, workspace: str | None = None, audience: str | None = None
    ) -> int:
        """End all grants of a session; how many there were.

        Of that workspace, and of that audience, if one is given.
        """
        session = self._sessions.get(session_id)
        if session is None or workspace not in (None, session.workspace):
            return 0
        grants = [
            each for each in session.grants.values() if audience in (None, each.terms.audience)
        ]
        for grant in grants:
            self._end(grant)
        return len(grants)

    async def check(self, token: str, caller: Identity, audience: str) -> Grant:
        """The grant of a token. Raises GRANT_REFUSED, the same for whatever is wrong."""
        now = asyncio.get_running_loop().time()
        kind, grant_id, secret = taken_apart(token)
        grant = self._by_id.get(grant_id)
        digest = digest_of(secret)  # of what is no token too: it takes as long
        right = hmac.compare_digest(digest, _NOBODYS if grant is None else grant.digest)
        why = ""
        if self._budget.spent(caller.uri, now):
            why = "too_many_failures"
        elif not kind:
            why = "malformed"
        elif grant is None or not right:
            why = "unknown"
        elif grant.revoked.is_set() or grant.until <= now:
            why = "over"
        elif caller.uri != grant.terms.caller:
            why = "cnf_mismatch"
        elif kind != audience or grant.terms.audience != audience:
            why = "audience_mismatch"
        elif caller.workspace not in ("", grant.terms.workspace):
            why = "workspace_mismatch"
        if why or grant is None:
            raise self._refused(why, caller, audience, grant, now)
        return grant

    def close(self) -> None:
        """End all."""
        for grant in list(self._by_id.values()):
            self._end(grant)

    def _refused(
        self, why: str, caller: Identity, audience: str, grant: Grant | None, now: float
    ) -> CarpalError:
        told = self._budget.failed(caller.uri, now)
        if told:
            facts = {} if grant is None else {"grant": grant.id, "session": grant.session}
            self._denied("grant.check", why, actor=caller.uri, kind=audience, **facts)
        return refuse(Reason.GRANT_REFUSED, "the grant is refused")

    def _token(self, grant: Grant) -> str:
        _, secret = minted(self._key, grant.name, grant.terms, grant.nonce)
        return token_of(grant.terms.audience, grant.id, secret)

    def _renew(self, grant: Grant) -> None:
        loop = asyncio.get_running_loop()
        if grant.timer is not None:
            grant.timer.cancel()
        grant.until = loop.time() + self._life
        grant.timer = loop.call_at(grant.until, self._end, grant)

    def _end(self, grant: Grant) -> None:
        grant.revoked.set()
        if grant.timer is not None:
            grant.timer.cancel()
        self._by_id.pop(grant.id, None)
        session = self._sessions.get(grant.session)
        if session is not None and session.grants.get(grant.name) is grant:
            del session.grants[grant.name]

    def _forget(self, now: float) -> None:
        gone = [key for key, it in self._sessions.items() if not it.grants and it.until <= now]
        for key in gone:
            del self._sessions[key]


def check_audience(audience: str, bound_to: str, hand: str, who: Identity, daemon: bool) -> None:
    """Whom a grant of this audience may be bound to. INVALID_FIELD."""
    if audience == OF_BRAINS:
        if bound_to != who.uri:
            raise invalid("bound_to", "must be the brain that asks")
        if hand:
            raise invalid("hand_id", "is of grants that are a daemon's")
    elif not daemon:
        raise invalid("bound_to", "must be a daemon of this trust domain")
    else:
        check_id(hand, "hand_id")
