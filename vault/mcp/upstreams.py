"""The servers that each grant uses, for as long as it is good; then they hear that it is over."""

import asyncio
import contextlib

from carpal.errors import CarpalError
from vault.guard.errors import GuardError
from vault.guard.transport import Guard
from vault.mcp.policy import ServerPolicy
from vault.mcp.ports import Credentials, Grant, Use
from vault.mcp.upstream import Upstream

END_LIMIT = 5.0
"""Seconds to tell a server that its session is over."""


class Upstreams:
    """Of all grants."""

    def __init__(self, guard: Guard, credentials: Credentials) -> None:
        self._guard = guard
        self._credentials = credentials
        self._known: dict[str, dict[str, tuple[str, Upstream]]] = {}
        """By grant and server, each with the generation of the credential it is used with."""
        self.watching: dict[str, asyncio.Task[None]] = {}
        """What waits for the end of each grant, and then ends what it had."""

    def of(self, grant: Grant, policy: ServerPolicy, use: Use) -> Upstream:
        """The server, as it is used with the credential of now."""
        known = self._known.setdefault(grant.id, {})
        if grant.id not in self.watching:
            self.watching[grant.id] = asyncio.create_task(self._until_over(grant))
        generation, upstream = known.get(policy.name, ("", None))
        if upstream is None or generation != use.generation:
            lane = (grant.id, policy.name, use.generation)
            upstream = Upstream(self._guard, policy, lane)
            known[policy.name] = (use.generation, upstream)
        return upstream

    async def _until_over(self, grant: Grant) -> None:
        """Once a grant is over, nothing that was learned or opened by it is kept."""
        try:
            await grant.revoked.wait()
            await self._end_sessions(grant)
        finally:
            for name, (generation, _) in self._known.pop(grant.id, {}).items():
                await self._guard.forget((grant.id, name, generation))
            self.watching.pop(grant.id, None)

    async def _end_sessions(self, grant: Grant) -> None:
        """Tell servers of before that their sessions are over; one that does not hear it has time.

        That is a use of the credential like any other, so it is written down as one, of ours.
        """
        for generation, upstream in list(self._known.get(grant.id, {}).values()):
            if not upstream.in_session:
                continue
            facts = {"session": grant.session, "grant": grant.id, "server": upstream.policy.name}
            with contextlib.suppress(CarpalError, GuardError, TimeoutError):
                async with (
                    asyncio.timeout(END_LIMIT),
                    self._credentials.use(
                        grant, upstream.policy, action="mcp.session.end", actor="vault", **facts
                    ) as use,
                ):
                    if use.generation == generation:  # by another one it is another's session
                        await upstream.end(use)

    async def close(self) -> None:
        """Forget all."""
        for task in list(self.watching.values()):
            task.cancel()
        if self.watching:
            await asyncio.wait(list(self.watching.values()))
