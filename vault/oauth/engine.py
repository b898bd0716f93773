"""Access tokens that are of use: refreshed in time, once for all who ask, not lost in a crash.

    claim the row, with the intent    on disk before anything is sent
    POST                              once
    commit the tokens                 on disk before anybody uses them

What is left by a crash in between is tried once more: many servers take a spent refresh token for
a while. Tokens that there are stay until there are newer ones, whatever the server says.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, TypeVar

from carpal.errors import CarpalError, refuse
from carpal.fault_points import point
from carpal.status import Reason
from vault.audit.audit import Audit, Record
from vault.guard.errors import BadTarget
from vault.guard.targets import Target
from vault.guard.transport import Guard
from vault.oauth import endpoint
from vault.oauth.answers import Answer, Granted, Later, Refused, Unknown
from vault.oauth.asking import refreshing
from vault.oauth.clocks import Clocks
from vault.oauth.ports import Credential, Credentials, Key, Tokens
from vault.oauth.refusals import later, over
from vault.oauth.rows import LEASE, Claimed, Ended, Newer, Rows, State
from vault.oauth.waits import Waits
from vault.oauth.when import expiry
from vault.safe.safe import Safe

_log = logging.getLogger(__name__)

AT_ONCE = 16
"""Refreshes at a time. A turn is taken before the claim, which must not run out while waiting."""
LOOK = 0.05
"""Seconds between looks at what another process does."""
YOUNG = 60.0
"""Seconds for which a token that replaced a refused one is not itself replaced when refused."""
T = TypeVar("T")


class Engine:
    """Of one vault. `executor` is the store's one thread."""

    def __init__(
        self,
        safe: Safe,
        executor: Executor,
        credentials: Credentials,
        guard: Guard,
        audit: Audit,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._safe = safe
        self._executor = executor
        self._credentials = credentials
        self._guard = guard
        self._audit = audit
        self._rows = Rows(safe, credentials.generation)
        self._flights: dict[Key, asyncio.Task[Credential]] = {}
        self._waits = Waits()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._forced: dict[Key, tuple[int, float]] = {}
        self._clocks = Clocks(clock)

    async def fresh(self, key: Key) -> Credential:
        """The credential with an access token that is of use. The caller's intent is in the audit.

        Raises CREDENTIAL_NEEDS_CONSENT when a person must do something first, and
        CREDENTIAL_NOT_REFRESHED when trying again later may do.
        """
        held = await self._do(self._credentials.load, key)
        if held.tokens.refresh is None and not self._clocks.usable(held.tokens):
            raise over(key, "no_refresh_token")
        if held.tokens.refresh is None or not self._clocks.due(held):
            return held
        try:
            return await self._refreshed(key, held.generation)
        except CarpalError:
            if self._clocks.usable(held.tokens):
                return held
            raise

    async def refused(self, key: Key, generation: int) -> bool:
        """A server took no token of this generation (401); whether there is another to try now."""
        now = await self._do(self._credentials.generation, key)
        if now != generation:
            return True
        made, at = self._forced.get(key, (0, 0.0))
        if made == generation and time.monotonic() - at < YOUNG:
            return False  # that server takes none of them
        if (await self._do(self._credentials.load, key)).tokens.refresh is None:
            return False
        try:
            held = await self._refreshed(key, generation)
        except CarpalError as error:
            _log.warning("not refreshed", extra={"credential": key.id, "why": str(error.reason)})
            return False
        self._forced[key] = (held.generation, time.monotonic())
        return True

    async def renewed(self, key: Key) -> str:
        """Refresh one whose token is due, or of whose refresh token nobody knows; how that went.

        `succeeded`, `failed`, `connect_error`, `no_refresh_token`; empty where there was no need.
        """
        held = await self._do(self._credentials.load, key)
        if held.tokens.refresh is None:
            return "" if self._clocks.usable(held.tokens) else "no_refresh_token"
        unsure = await self._do(self._rows.state, key) is not State.FRESH
        if not unsure and not self._clocks.due(held):
            return ""
        try:
            await self._refreshed(key, held.generation)
        except CarpalError as error:
            if error.reason is Reason.AUDIT_NOT_WRITTEN:
                raise
            return error.fields.get("refresh", "failed")
        return "succeeded"

    async def state(self, key: Key) -> State:
        """Of its refreshing."""
        return await self._do(self._rows.state, key)

    async def aclose(self) -> None:
        """Let what is under way end; it is bounded."""
        if self._flights:
            await asyncio.wait(set(self._flights.values()))

    # One refresh.

    async def _refreshed(self, key: Key, generation: int) -> Credential:
        """With tokens after this generation: whoever comes meanwhile waits for the same refresh."""
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(self._flight(key, generation))
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._landed(key, done))
        # Shielded: it is for all who wait, and must not end where one of them does.
        return await asyncio.shield(flight)

    def _landed(self, key: Key, flight: asyncio.Task[Credential]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # all who asked may have left

    async def _flight(self, key: Key, generation: int) -> Credential:
        until = time.monotonic() + LEASE
        while True:
            if wait := self._waits.left(key):
                raise later(f"the last try failed; the next is in {wait:.0f} s at the earliest")
            async with self._turns:
                point("vault.oauth.before_claimed")
                match await self._do(self._rows.claim, key, generation):
                    case Newer():
                        return await self._do(self._credentials.load, key)
                    case Ended(code):
                        raise over(key, code)
                    case Claimed(unknown):
                        point("vault.oauth.claimed")
                        return await self._claimed(key, generation, unknown)
            if time.monotonic() > until:
                raise later("another process is at it for too long")
            await asyncio.sleep(LOOK)

    async def _claimed(self, key: Key, generation: int, unknown: bool) -> Credential:
        """This process is the one; `unknown` says that one before may have been, too."""
        begun = unknown
        refused = ""
        done = False
        try:
            async with self._audit.intent(
                "oauth.refresh",
                actor="vault",
                workspace=key.workspace,
                vault_id=key.vault_id,
                credential=key.id,
                generation=generation,
                reason="refresh_unknown" if unknown else "",
            ) as record:
                held = await self._do(self._credentials.load, key)
                if held.generation != generation:  # the claim is none of what there is by now
                    record.outcome("newer")
                    return held
                where = _where(held)
                if wait := self._waits.left(str(where)):
                    raise later(f"{where} fails; it is left alone for {wait:.0f} s")
                begun = True
                point("vault.oauth.before_sent")
                sent = self._clocks.now()
                answer = await self._ask(held)
                point("vault.oauth.answered")
                self._say(record, where, answer)
                if isinstance(answer, Granted):
                    tokens = _merged(held.tokens, answer, sent)
                    made = await self._do(self._commit, held, tokens)
                    done = True
                    point("vault.oauth.committed")
                    return await self._took(key, where, made)
                begun = isinstance(answer, Unknown) or (unknown and isinstance(answer, Later))
                self._fell(key, where, answer)
                if isinstance(answer, Refused):
                    refused = answer.code
                    raise over(key, refused)
                if answer == Later(0):
                    raise later("the authorization server is not reached", "connect_error")
                raise later("the authorization server did not answer as it should")
        finally:
            if not done:
                end = lambda: self._rows.end(key, generation, begun=begun, refused=refused)  # noqa: E731
                await self._do(end)

    async def _ask(self, held: Credential) -> Answer:
        refresh = held.tokens.refresh
        if refresh is None:
            return Refused("no_refresh_token")
        secrets = [refresh, *([held.client_secret] if held.client_secret else [])]
        request = refreshing(held.client, held.client_secret, refresh)
        return await endpoint.ask(self._guard, request, held.client, secrets)

    def _commit(self, held: Credential, tokens: Tokens) -> int | None:
        """The generation they have; None when somebody put others in meanwhile, which stay.

        Also by who lost the lease, or was overtaken by another change: these tokens are granted,
        and the one they replace is spent.
        """
        with self._safe.transaction():
            if self._credentials.load(held.key).tokens.refresh != held.tokens.refresh:
                return None
            made = self._credentials.commit(held.key, tokens)
            self._rows.done(held.key)
            return made

    async def _took(self, key: Key, where: Target, made: int | None) -> Credential:
        self._waits.worked(key, str(where))
        if made is not None:
            self._clocks.came(key, made)
        return await self._do(self._credentials.load, key)

    # What is learned from it.

    def _say(self, record: Record, where: Target, answer: Answer) -> None:
        match answer:
            case Granted():
                record.outcome("ok")
            case Refused(code):
                record.outcome("refused", reason=code)
            case Later(status):
                record.outcome("later", verdict=str(status or "unreachable"))
            case Unknown(why):
                record.outcome("unknown", reason=why)
        record.add(host=where.host, port=where.port)

    def _fell(self, key: Key, where: Target, answer: Answer) -> None:
        self._waits.failed(key, str(where), answer)
        if isinstance(answer, Refused):
            self._audit.event(
                "oauth.refresh_failed",
                workspace=key.workspace,
                credential=key.id,
                reason=answer.code,
            )

    async def _do(self, work: Callable[..., T], *given: Any) -> T:
        """In the store's thread, to its end also when the caller leaves."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._executor, work, *given))


def _merged(before: Tokens, answer: Granted, sent: float) -> Tokens:
    expires, lifetime = expiry(answer.expires_in, before.lifetime, sent)
    return Tokens(answer.access, answer.refresh or before.refresh, expires, lifetime)


def _where(held: Credential) -> Target:
    try:
        return replace(Target.parse(held.client.token_endpoint), path="/")
    except BadTarget:
        raise refuse(
            Reason.CREDENTIAL_CORRUPT, f"the credential {held.key.id!r} has no token endpoint"
        ) from None
