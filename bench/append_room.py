"""The room that sessiond takes: on disk for an event, in memory for an open tail."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from bench.append_load import WAIT, Load, lease
from bench.sessiond_process import sessiond, stored_bytes
from carpal.ids import new_id
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub  # known to the stubs alone

_SESSIONS = 64
_CHANNELS = 4
_AT_ONCE = 50


async def bytes_per_event(state: Path, seconds: float) -> float:
    """All bytes on disk of a sessiond that has stopped, over its events of 1 KB."""
    with sessiond(state) as server:
        async with server.brain() as stub:
            epochs = {name: await lease(stub, name) for name in map(str, range(_SESSIONS))}
            load = Load(stub, epochs, _SESSIONS, seconds)
            await load.run()
    return stored_bytes(state) / load.appended


async def tail_kb(state: Path, tails: int) -> float:
    """KiB of memory of a fresh sessiond for each open tail, which has sent one live event."""
    names = [f"tail-{number}" for number in range(tails)]
    with sessiond(state) as server:
        async with AsyncExitStack() as stack:
            stubs = [await stack.enter_async_context(server.brain()) for _ in range(_CHANNELS)]
            await _each(names, lambda name: _create(stubs[0], name))
            async with _followed(stubs, names[:_CHANNELS]):
                before = server.resident_kb()  # with all that the first tails cost
            async with _followed(stubs, names):
                return (server.resident_kb() - before) / tails


@asynccontextmanager
async def _followed(stubs: "list[SessionAsyncStub]", names: list[str]) -> AsyncIterator[None]:
    """A tail of each session by itself is open, spread over the channels, and proven live."""
    calls = [
        stubs[number % len(stubs)].TailEvents(
            pb.TailEventsRequest(cursors=[types_pb2.TailCursor(session_id=name)]),
            timeout=4 * WAIT,
        )
        for number, name in enumerate(names)
    ]
    try:
        await asyncio.gather(*(_until(call, lambda response: response.live) for call in calls))
        await _each(names, lambda name: _emit(stubs[0], name))
        await asyncio.gather(*(_until(call, lambda response: response.events) for call in calls))
        yield
    finally:
        for call in calls:
            call.cancel()


async def _until(call: Any, wanted: Callable[[pb.TailEventsResponse], object]) -> None:
    while (response := await call.read()) is not grpc.aio.EOF:
        if wanted(response):
            return
    raise RuntimeError(f"a tail ended: {await call.details()}")


async def _create(stub: "SessionAsyncStub", session_id: str) -> None:
    request = pb.CreateSessionRequest(session_id=session_id, workspace="default")
    await stub.CreateSession(request, timeout=WAIT)


async def _emit(stub: "SessionAsyncStub", session_id: str) -> None:
    event = types_pb2.NewEvent(id=new_id("sevt"), type="user.message", data=b"{}")
    request = pb.EmitEventRequest(session_id=session_id, event=event)
    await stub.EmitEvent(request, timeout=WAIT)


async def _each(names: Iterable[str], act: Callable[[str], Awaitable[None]]) -> None:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        async with room:
            await act(name)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))
