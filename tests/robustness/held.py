"""Lease holders as child processes, and what their leases look like from outside."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from tests.command import ROOT
from tests.robustness.service import SECONDS, Service

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub


@dataclass
class Held:
    """A holder that runs."""

    process: asyncio.subprocess.Process

    async def says(self, key: str) -> Any:
        """The next thing it says under a key."""
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while line := await self.process.stdout.readline():
                facts = json.loads(line)
                if key in facts:
                    return facts[key]
        raise AssertionError(f"it ended and did not say {key!r}")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    async def ended(self) -> None:
        """It ends."""
        async with asyncio.timeout(SECONDS):
            await self.process.wait()


@asynccontextmanager
async def holder(
    service: Service,
    session_id: str,
    term: float,
    *,
    brain: str = "brain-1",
    name: str = "s1",
    idle: bool = False,
) -> AsyncIterator[Held]:
    """One that takes the lease; killed at the end, should it still be there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.robustness.holder",
        *(str(service.identity(brain).directory), service.address(name), session_id, str(term)),
        *(["idle"] if idle else []),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        limit=1 << 20,
    )
    try:
        yield Held(process)
    finally:
        if process.returncode is None:
            process.kill()
        # Reads what is left, so that no pipe outlives the loop.
        async with asyncio.timeout(SECONDS):
            await process.communicate()


async def create(stub: "SessionAsyncStub", session_id: str = "sesn_1") -> None:
    """A session without events."""
    await stub.CreateSession(pb.CreateSessionRequest(session_id=session_id, workspace="default"))


async def take(stub: "SessionAsyncStub", session_id: str, **asked: Any) -> types_pb2.LeaseInfo:
    """The session's lease, as soon as it is to be had and no sooner.

    By the store's clock: a watch says when the holder's has run out.
    """
    resource = f"session/{session_id}"
    watch = stub.WatchLeases(pb.WatchLeasesRequest(prefix=resource))
    live = False
    try:
        async with asyncio.timeout(SECONDS):
            async for answer in watch:
                for lease in answer.leases:
                    live = lease.HasField("expires_in")
                if live or answer.more:
                    continue
                try:
                    with rpc_errors("sessiond"):
                        request = pb.AcquireLeaseRequest(resource=resource, **asked)
                        return (await stub.AcquireLease(request)).lease
                except CarpalError as error:
                    if error.reason is not Reason.LEASE_HELD:
                        raise  # else the watch has yet to hear of it, from another process
    finally:
        watch.cancel()
    raise AssertionError("the watch ended")
