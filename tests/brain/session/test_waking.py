"""A driver wakes from the newest checkpoint that can be gone by, and follows from there."""

import asyncio
import json
from typing import Any

import grpc
import pytest

from brain.models.model import Reply
from brain.runner import Runner
from brain.session.driver import Driver
from brain.session.entries import COMPACTED, New
from brain.session.leases import Log
from brain.session.log import Appender
from brain.session.transcript import Transcript
from brain.session.waking import SHORT, Waking
from carpal.v1 import session_pb2, types_pb2
from tests.brain.chance import asked_of
from tests.brain.said import Said, uses
from tests.brain.stage import WAIT, Stage, emit

AGENT = {"name": "a", "model": "m", "max_tokens": 100}
CONTEXT = {"policy": "compact", "at_tokens": 1500, "keep_tokens": 500}
LONG = "x" * 3000


async def compacting(driven: Stage, rounds: int = 4) -> None:
    """One turn that outgrows its window, driven to idle."""
    hands = {"shell": {"type": "process"}}
    agent = {"agent": AGENT | {"context": CONTEXT}, "hands": hands}
    await driven.driver.append(New("session.updated", agent))
    model = Summing(rounds)
    runner = Runner(driven.driver, driven.fleet, driven.hub, model)
    async with asyncio.timeout(WAIT):
        await runner.run()


class Summing(Said):
    """Runs something long in each reply, and sums up when it is asked to."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.left = rounds

    async def call(self, parameters: dict[str, Any], *args: Any) -> Any:
        """See Model."""
        last = parameters["messages"][-1]["content"][-1]
        if last.get("text", "").startswith("The conversation has grown"):
            return Reply([{"type": "text", "text": "SUMMARY"}], "end_turn", {})
        self.left -= 1
        if self.left >= 0:
            self.replies.append(uses(LONG))
        return await super().call(parameters, *args)


async def filled(driven: Stage) -> None:
    """More events than are read whole."""
    for _ in range(4):
        await driven.driver.append(*[New("session.status_running", {})] * (SHORT // 4))


async def woken(driven: Stage, **which: int) -> Transcript:
    """What another driver would follow the log from."""
    stub = await driven.sessions.brain()
    waking = Waking(stub, driven.driver.session_id, **which)
    return await waking.transcript(driven.driver.transcript.head)


def long_log(head: int) -> Log:
    """What a lease says of a log that is too long to come with it."""
    return Log(0, None, types_pb2.ChainHead(position=head), 0)


async def last_cut(driven: Stage) -> dict[str, Any]:
    """The data of the newest cut."""
    kinds, datas = await driven.kinds(), await driven.datas()
    return [data for kind, data in zip(kinds, datas, strict=True) if kind == COMPACTED][-1]


async def test_a_cut_has_a_checkpoint_and_whoever_wakes_goes_on_from_it(driven: Stage) -> None:
    await compacting(driven)
    await filled(driven)
    cut = await last_cut(driven)
    assert cut["kind"] == "summary"
    transcript = await woken(driven)
    assert transcript.head == cut["through"] == cut["state"]["through"]
    stub, appender = await driven.sessions.brain(), driven.driver._appender
    lease = driven.driver.lease
    head = driven.driver.transcript.head
    another = Driver("sesn_1", "default", lease, stub, appender, log=long_log(head))
    following = asyncio.create_task(another.follow())
    async with asyncio.timeout(WAIT):
        await another.until(lambda t: t.head >= head)
    following.cancel()
    await asyncio.wait({following})
    assert asked_of(another.transcript) == asked_of(driven.driver.transcript)


async def test_each_further_checkpoint_reads_the_log_from_the_one_before(driven: Stage) -> None:
    await compacting(driven, rounds=9)
    cuts = [data for data in await driven.datas() if "tokens_before" in data]
    assert len(cuts) >= 2
    base = driven.driver._waking._base
    assert base is not None
    assert base == cuts[-1]["state"]


async def test_a_short_log_is_read_whole(driven: Stage) -> None:
    await compacting(driven)
    assert driven.driver.transcript.head <= SHORT
    assert (await woken(driven)).head == 0


async def test_a_redacted_checkpoint_is_passed_over_for_the_one_before_it(driven: Stage) -> None:
    await compacting(driven, rounds=9)
    await filled(driven)
    stub = await driven.sessions.operator()
    request = session_pb2.GetEventsRequest(session_id="sesn_1", types=[COMPACTED], limit=100)
    events = (await stub.GetEvents(request)).events
    assert len(events) >= 2
    redact = session_pb2.RedactEventRequest(
        session_id="sesn_1", position=events[-1].position, reason="a secret"
    )
    await stub.RedactEvent(redact)
    assert (await woken(driven)).head == json.loads(events[-2].data)["through"]


async def test_an_operator_can_put_no_checkpoint_into_a_log(driven: Stage) -> None:
    await compacting(driven)
    forged = json.dumps(await last_cut(driven)).encode()
    event = types_pb2.NewEvent(id="e1", type=COMPACTED, data=forged)
    stub = await driven.sessions.operator()
    begun = session_pb2.CreateSessionRequest(session_id="sesn_2", events=[event])
    with pytest.raises(grpc.aio.AioRpcError, match="may not begin a session"):
        await stub.CreateSession(begun, timeout=WAIT)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.EmitEvent(session_pb2.EmitEventRequest(session_id="sesn_1", event=event))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_session_that_is_woken_from_a_checkpoint_goes_on(driven: Stage) -> None:
    await compacting(driven)
    await filled(driven)
    said = {"content": [{"type": "text", "text": "and now?"}]}
    head = driven.driver.transcript.head + 1
    await emit(driven.sessions, "sesn_1", "user.message", said)
    stub = await driven.sessions.brain()
    appender = Appender(stub)
    another = Driver("sesn_1", "default", driven.driver.lease, stub, appender, log=long_log(head))
    helpers = [asyncio.create_task(another.follow()), asyncio.create_task(appender.run())]
    async with asyncio.timeout(WAIT):
        await another.until(lambda t: t.head >= head)
        await Runner(another, driven.fleet, driven.hub, Said()).run()
    for helper in helpers:
        helper.cancel()
    await asyncio.wait(helpers)
    kinds = await driven.kinds()
    assert kinds[-1] == "session.status_idle"
    assert kinds[-3] == "agent.message"


async def test_a_checkpoint_is_passed_over_once_an_event_that_it_holds_was_redacted(
    driven: Stage,
) -> None:
    await compacting(driven)
    await filled(driven)
    assert (await woken(driven)).head > 0
    kinds = await driven.kinds()
    stub = await driven.sessions.operator()
    position = kinds.index("session.updated") + 1
    redact = session_pb2.RedactEventRequest(
        session_id="sesn_1", position=position, reason="a password in the system prompt"
    )
    await stub.RedactEvent(redact)
    assert (await woken(driven)).head == 0
