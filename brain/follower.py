"""A session's moments for a watcher here, whichever brain drives the session.

The hub gives those of this brain; while another drives, its `Watch` is relayed
for as long as it has the lease. A watch ends with its follower, and says why:
who watches opens another, and would else wait for what never comes.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from brain.daemons.hands_at import Peers
from brain.session.leases import follow_leases, is_live
from brain.session.watch import Moments
from carpal.backoff import Backoff
from carpal.client import held, rpc_errors
from carpal.errors import CarpalError
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import session_pb2_grpc

log = logging.getLogger(__name__)


class Follower:
    """Follows the drivers of sessions."""

    def __init__(
        self, sessions: "session_pb2_grpc.SessionAsyncStub", peers: Peers, me: str
    ) -> None:
        """`me` is this brain's URI."""
        self._sessions = sessions
        self._peers = peers
        self._me = me

    async def each(
        self, session_id: str, moments: Moments
    ) -> AsyncGenerator[pb.WatchResponse, None]:
        """What comes to `moments` from here and from elsewhere. Raises what following raised."""
        following = asyncio.create_task(self._follow(session_id, moments))
        following.add_done_callback(lambda _: moments.end())
        try:
            async with aclosing(moments.each()) as given:
                async for moment in given:
                    yield moment
            await following
        finally:
            following.cancel()
            await asyncio.wait({following})

    async def _follow(self, session_id: str, moments: Moments) -> None:
        """Relay moments while another brain drives; runs until cancelled."""
        relaying: asyncio.Task[None] | None = None
        async with (
            asyncio.TaskGroup() as group,
            aclosing(follow_leases(self._sessions, f"session/{session_id}")) as answers,
        ):
            async for answer in answers:
                for lease in answer.leases:
                    if relaying is not None:
                        relaying.cancel()
                    if is_live(lease) and lease.holder != self._me:
                        relay = self._relay(session_id, lease.address, moments)
                        relaying = group.create_task(relay)

    async def _relay(self, session_id: str, address: str, moments: Moments) -> None:
        """Relay what a brain tells, again when the way to it breaks; runs until cancelled."""
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                stub = await self._peers.orchestrator(address)
                with (
                    rpc_errors(f"the brain at {address}"),
                    held(stub.Watch(pb.WatchRequest(session_id=session_id))) as stream,
                ):
                    async for moment in stream:
                        backoff.works()
                        if not moments.full():
                            moments.put_nowait(moment)
            except CarpalError as error:
                log.info("watch relay ended", extra={"session": session_id, "error": str(error)})
            await asyncio.sleep(backoff.next())
