"""From hello to welcome: a brain to which thousands come at once takes them in turns."""

import asyncio
import dataclasses
from typing import Any

from brain.admission import AT_ONCE, Admission
from brain.daemon_link import DaemonLink
from brain.introduction import Introduction
from carpal.identity import Role
from carpal.revocations import Revocations
from carpal.v1 import orchestrator_pb2 as pb
from tests.brain.serving import brain
from tests.brain.stage import WAIT
from tests.sessiond.serving import Serving


class Held:
    """A stub that answers for no daemon before it may, and counts those that ask."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self.may = asyncio.Event()
        self.asking = self.most = 0
        self.full = asyncio.Event()

    async def GetDocument(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109 - as the stub
        """See the session service."""
        self.asking += 1
        self.most = max(self.most, self.asking)
        if self.asking == AT_ONCE:
            self.full.set()
        try:
            await self.may.wait()
            return await self._stub.GetDocument(request, timeout=timeout)
        finally:
            self.asking -= 1


async def test_daemons_that_come_at_once_are_admitted_in_turns_and_all_get_in(
    sessions: Serving,
) -> None:
    files = sessions.pki.issue(Role.DAEMON, "d")
    async with brain(sessions) as one, asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
        directory = one.fleet.directory
        directory.sessions = held = Held(directory.sessions)  # type: ignore[assignment]
        me = sessions.pki.issue(Role.BRAIN, one.name)
        admission = Admission(one.fleet, me.identity(), Introduction(me, Revocations()))

        async def come(name: str) -> int:
            link = DaemonLink(dataclasses.replace(files.identity(), name=name), lambda: 10.0)
            return (await admission.admit(link, pb.Hello(daemon_id=name), 1)).epoch

        coming = [group.create_task(come(f"d{n}")) for n in range(3 * AT_ONCE)]
        await held.full.wait()
        held.may.set()
        assert [await one for one in coming] == [1] * len(coming)
    assert held.most == AT_ONCE
