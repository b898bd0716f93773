"""What a hand tells of calls the log had given up: the truth is added, whenever it comes.

A call is given up when its hand was out of reach past its orphan deadline and
a margin. Should the hand come back, the call is cancelled ahead of all else
(`HandLine.claim`), and what became of it is appended as `hand.late_result`,
with a wake: the model is told, also when nobody drives the session by then.
"""

import asyncio
import logging
from contextlib import aclosing

from brain.daemons.hands_at import one
from brain.hands.call_on_hand import never_accepted
from brain.hands.hand_line import HandLine
from brain.hands.provision import driver_of
from brain.session.driver import Driver
from brain.session.entries import Call, New
from brain.session.results import late_event, word
from carpal.v1 import hand_pb2

log = logging.getLogger(__name__)

END_LIMIT = 30.0
"""Seconds for a call to end that was just cancelled: its grace, a sweep, a slow link."""
HEARD_AT_ONCE = 100
"""Calls a hand is asked about at one look; of the others at the next."""
_NO_NEWS = ("interrupted", "lost")
"""Outcomes that say no more than the log does already."""


def to_hear(line: HandLine, driver: Driver) -> list[Call]:
    """The calls of a hand that were given up, and of which it did not say what it knows."""
    return [c for c in driver.transcript.given_up_calls(line.hand) if c.call_id not in line.heard]


async def hear_late(line: HandLine, driver: Driver, end_limit: float = END_LIMIT) -> None:
    """Ask a hand for the calls that were given up; end it when the log lost it for good.

    Raises what asking it raises, and TimeoutError when a call does not end in `end_limit`
    seconds; asking again is safe. There may be more `to_hear` then.
    """
    asked = to_hear(line, driver)
    calls = asked[:HEARD_AT_ONCE]
    claim = await line.claim([call.call_id for call in calls])
    for call, told in zip(calls, claim.calls, strict=True):
        async with asyncio.timeout(end_limit):
            result = await _truth(line, call, claim, told)
        if result is not None and word(result.outcome) not in _NO_NEWS:
            await driver.append(late_event(call, line.hand, result), wake=True)
    settled = driver.transcript.settled_calls(line.hand)
    await line.acknowledge([call.call_id for call in (*settled, *calls)])
    if line.hand.given_up and len(calls) == len(asked):
        request = hand_pb2.ReleaseRequest(driver=driver_of(driver), hand_id=line.hand.hand_id)
        await one(line.ask("release", request))
        name = {"hand_id": line.hand.hand_id, "name": line.hand.name}
        await driver.append(New("hand.released", name))
    line.heard.update(call.call_id for call in calls)


async def _truth(
    line: HandLine, call: Call, claim: hand_pb2.ClaimResponse, told: hand_pb2.CallInfo
) -> hand_pb2.Result | None:
    """How a call ended, by the hand's word; None when it cannot say."""
    if told.state in (hand_pb2.CALL_STATE_UNKNOWN, hand_pb2.CALL_STATE_TOMBSTONE):
        if not never_accepted(line.hand, claim):
            return None
        text = "[it never reached its hand, and will not run any more]"
        return hand_pb2.Result(
            outcome=hand_pb2.OUTCOME_CANCELLED, content=text, sequence=claim.sequence
        )
    if told.state == hand_pb2.CALL_STATE_ACKNOWLEDGED:
        text = "[its output was already freed]"
        return hand_pb2.Result(outcome=told.outcome, content=text, sequence=claim.sequence)
    async with aclosing(line.execute(call)) as responses:
        async for response in responses:
            if response.HasField("result"):
                result: hand_pb2.Result = response.result
                return result
    return None
