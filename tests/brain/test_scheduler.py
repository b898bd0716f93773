"""The scheduler drives what is runnable, once, and loses no offer and no reason."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from brain import harness, restraint
from brain.effects import Emit, Finish, HarnessType, Sleep
from brain.scheduler import Scheduler
from brain.session.leases import LeaseKeeper
from brain.session.log import Appender
from brain.session.watch import WatchHub
from carpal.v1 import session_pb2, types_pb2
from tests.brain.said import Said
from tests.brain.stage import WAIT, ScriptedFleet, create, emit, scripted
from tests.sessiond.serving import Serving


class Brain:
    """A scheduler that runs, on a session service."""

    def __init__(self, sessions: Serving, stub: Any, fleet: ScriptedFleet) -> None:
        self.sessions = sessions
        self.model = Said()
        self.keeper = LeaseKeeper(stub, 10.0)
        self.appender = Appender(stub)
        self.scheduler = Scheduler(
            stub, self.keeper, self.appender, fleet, WatchHub(), model=self.model, hand_idle=600.0
        )

    async def until(self, holds: Callable[[types_pb2.SessionInfo], bool]) -> types_pb2.SessionInfo:
        """Look until something is true of the session."""
        request = session_pb2.GetSessionRequest(session_id="sesn_1")
        stub = await self.sessions.operator()
        while not holds(info := (await stub.GetSession(request)).session):
            await look_again()
        return info

    async def idles(self) -> None:
        """Look until nothing is driven."""
        while self.scheduler._driving:
            await look_again()

    async def events(self, session_id: str = "sesn_1") -> list[tuple[str, dict[str, Any]]]:
        """The log."""
        request = session_pb2.GetEventsRequest(session_id=session_id, limit=1000)
        answer = await (await self.sessions.operator()).GetEvents(request)
        return [(e.type, json.loads(e.data)) for e in answer.events]


async def look_again() -> None:
    """What is looked for is announced to nobody here."""
    await asyncio.sleep(0.02)


@pytest.fixture
async def brain(sessions: Serving) -> AsyncIterator[Brain]:
    """A brain's scheduler, not running yet."""
    async with scripted(sessions) as fleet:
        yield Brain(sessions, await sessions.brain(), fleet)


@asynccontextmanager
async def running(brain: Brain) -> AsyncIterator[asyncio.Task[None]]:
    """While the block lasts."""
    appending = asyncio.create_task(brain.appender.run())
    task = asyncio.create_task(brain.scheduler.run())
    try:
        async with asyncio.timeout(WAIT):
            yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        appending.cancel()
        await asyncio.wait({appending})


def idle(info: types_pb2.SessionInfo) -> bool:
    """Nobody drives it, and somebody did."""
    return info.lease.epoch > 0 and info.lease.expires_in.ToNanoseconds() == 0


async def test_a_session_that_was_woken_is_driven_to_idle_and_released(brain: Brain) -> None:
    await create(brain.sessions, wake=True)
    async with running(brain):
        await brain.until(idle)
    kinds = [kind for kind, _ in await brain.events()]
    assert kinds[-1] == "session.status_idle"
    assert kinds.count("agent.message") == 1


async def test_no_more_sessions_are_driven_at_once_than_the_setting_says(brain: Brain) -> None:
    brain.scheduler._slots = asyncio.Semaphore(1)
    brain.model.gate.clear()
    for session_id in ("sesn_1", "sesn_2"):
        await create(brain.sessions, session_id, wake=True)
    async with running(brain):
        await brain.model.asking.wait()
        while len(brain.scheduler._driving) < 2:
            await look_again()
        assert brain.model.asked == 1
        brain.model.gate.set()
        await brain.idles()
    assert brain.model.asked == 2


async def test_an_offer_that_comes_while_it_is_driven_is_not_lost(brain: Brain) -> None:
    await create(brain.sessions, wake=True)
    brain.model.gate.clear()
    async with running(brain):
        await brain.model.asking.wait()
        offer = types_pb2.RunnableSession(session_id="sesn_1")
        brain.scheduler._consider(offer)
        said = {"content": [{"type": "text", "text": "more"}]}
        await emit(brain.sessions, "sesn_1", "user.message", said)
        brain.model.gate.set()
        await brain.until(lambda info: idle(info) and info.lease.epoch >= 2)
    texts = [d["content"][0]["text"] for kind, d in await brain.events() if kind == "agent.message"]
    assert texts[-1] == "reply 2"
    assert len(texts) == 2


async def test_a_drive_that_breaks_is_released_with_its_reason_and_others_go_on(
    brain: Brain,
) -> None:
    brain.model.fails = RuntimeError("a bug")
    await create(brain.sessions, wake=True)
    async with running(brain):
        await brain.until(idle)
        brain.model.fails = None
        await create(brain.sessions, "sesn_2", wake=True)
        while "session.status_idle" not in dict(await brain.events("sesn_2")):
            await look_again()


def raises(_: Any) -> Any:
    """A harness that means to end the program."""
    yield Finish(sys.exit(3))


def cancels(_: Any) -> Any:
    """A harness that cancels whoever drives it."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    yield Sleep(60.0)


def ends_in_a_task(_: Any) -> Any:
    """A harness whose own task means to end the program."""

    async def ends() -> None:
        raise SystemExit(3)

    task = asyncio.ensure_future(ends())
    yield Sleep(0.01)
    task.result()
    yield Finish("end_turn")


def spins(_: Any) -> Any:
    """A harness that waits no time, for ever."""
    while True:
        yield Sleep(0)


def notes(_: Any) -> Any:
    """A harness that takes notes, for ever."""
    while True:
        yield Emit("odd.note")


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (ends_in_a_task, "is at fault: it raised Ended: a task of the harness raised SystemExit"),
        (spins, "it goes round in a loop that waits too little"),
        (notes, "is at fault: it appended events, or asked in vain, more than 3 times"),
        (raises, "is at fault: it raised SystemExit: 3"),
        (cancels, "it was cancelled"),
    ],
)
async def test_a_harness_that_means_to_end_the_brain_parks_its_session_after_three_tries(
    brain: Brain, monkeypatch: pytest.MonkeyPatch, start: Any, why: str
) -> None:
    kind = HarnessType("1", start)
    monkeypatch.setattr(restraint, "NOTES_MAX", 3)
    monkeypatch.setattr(restraint, "EFFECTS_MAX", 50)
    monkeypatch.setattr(harness, "load", lambda _: kind)
    await create(brain.sessions, wake=True)
    async with running(brain):

        async def tries_go_by() -> None:
            while True:
                await look_again()
                await brain.sessions.advance(1.0)

        going = asyncio.create_task(tries_go_by())
        parked = await brain.until(lambda info: bool(info.parked_reason))
        going.cancel()
        assert why in parked.parked_reason
        assert not brain.keeper._held


async def test_a_brain_that_stops_hands_its_sessions_over_at_once(brain: Brain) -> None:
    await create(brain.sessions, wake=True)
    brain.model.gate.clear()
    async with running(brain) as task:
        await brain.model.asking.wait()
        task.cancel()
        await asyncio.wait({task})
        offers = (await brain.sessions.brain("brain-2")).WatchRunnable(
            session_pb2.WatchRunnableRequest()
        )
        offered: list[str] = []
        async for answer in offers:
            offered += [each.session_id for each in answer.sessions]
            if offered:
                break
        offers.cancel()
    assert offered == ["sesn_1"]


async def test_a_lease_that_is_lost_ends_the_drive_and_appends_nothing_more(
    brain: Brain,
) -> None:
    await create(brain.sessions, wake=True)
    brain.model.gate.clear()
    async with running(brain):
        await brain.model.asking.wait()
        before = len(await brain.events())
        (lease,) = brain.keeper._held.values()
        lease.lost.set()
        await brain.idles()
        brain.model.gate.set()
        assert len(await brain.events()) == before


async def test_a_session_another_brain_has_is_left_to_it(brain: Brain) -> None:
    await create(brain.sessions, wake=True)
    await brain.sessions.lease("sesn_1", "brain-2")
    async with running(brain):
        brain.scheduler._consider(types_pb2.RunnableSession(session_id="sesn_1"))
        await brain.idles()
    assert brain.model.asked == 0


async def test_a_log_with_what_must_be_understood_and_is_not_is_not_driven(
    brain: Brain,
) -> None:
    await create(brain.sessions)
    held = await brain.sessions.lease("sesn_1", "brain-2")
    newer = types_pb2.NewEvent(id="e9", type="agent.newer", data=b"{}", must_understand=True)
    group = types_pb2.AppendGroup(
        sequence=1, session_id="sesn_1", events=[newer], epoch=held.lease.epoch, wake=True
    )
    stream = (await brain.sessions.brain("brain-2")).Append()
    await stream.write(session_pb2.AppendRequest(groups=[group]))
    await stream.read()
    stream.cancel()
    await brain.sessions.advance(11.0)
    async with running(brain):
        await brain.until(lambda info: info.lease.epoch >= 2 and idle(info))
    assert brain.model.asked == 0
