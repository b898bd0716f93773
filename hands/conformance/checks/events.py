"""What hands say unasked: heard, said again until it is acknowledged, and then no more."""

import asyncio
import json
import re
from collections.abc import Sequence

from carpal.client import held
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Failed, Skipped, equal, must
from hands.conformance.bench import Bench
from hands.conformance.group import Group
from hands.conformance.hand import HandAt

events = Group("events")

_SOON = 5.0
"""Seconds for an event to be there that a call had the hand say."""
_QUIET = 1.0
"""Seconds in which what is not said again does not come."""
_DATA_MAX = 16 * 1024
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_KIND = re.compile(r"[a-z0-9._-]{1,64}")
_SAY = (
    "Say it, by Events or in Python by context.event, or take `events` out of the capabilities; if "
    "the call of --says says nothing, give another."
)
_EVENT = (
    "Give each event an event_id of letters, digits, `_` and `-`, a kind of a-z, 0-9, `.`, `_` and "
    "`-`, and as data the JSON of an object, at most 16 KiB."
)
_AGAIN = "Have Events answer what is not in `acknowledged` again, whenever it is asked."
_FORGET = "Forget an event once an EventsRequest has it in `acknowledged`."


@events()
async def asked_what_it_says(bench: Bench) -> None:
    """Events can be asked of a hand at any time, and what it answers is events of that hand."""
    hand = await bench.hand()
    for said in await _heard(bench, hand, 1, bench.slow(_QUIET)):
        _check(bench, hand, said)


@events()
async def says_until_it_is_heard(bench: Bench) -> None:
    """What a hand says unasked comes again until it is acknowledged, and then no more."""
    if bench.subject.says is None:
        raise Skipped("the checks know no call that has it say something: say one with --says")
    hand = await bench.hand()
    tool, given = bench.subject.says
    answer = await hand.run(tool, given)
    must(answer.result.outcome == pb.OUTCOME_OK, f"--says {tool} failed: {answer.text[-200:]!r}")
    first = await _heard(bench, hand, 1, bench.slow(_SOON))
    if not first:
        raise Failed(f"nothing was said within {bench.slow(_SOON):g} s", _SAY)
    _check(bench, hand, first[0])
    again = await _heard(bench, hand, 1, bench.slow(_SOON))
    ids = [each.event_id for each in again[:1]]
    equal("what is said again", ids, [first[0].event_id], _AGAIN)
    key = pb.EventKey(hand_id=hand.hand_id, event_id=first[0].event_id)
    later = await _heard(bench, hand, 100, bench.slow(_QUIET), [key])
    later += await _heard(bench, hand, 100, bench.slow(_QUIET))
    told = [each.event_id for each in later if each.event_id == first[0].event_id]
    equal("what is said after it was acknowledged", told, [], _FORGET)


async def _heard(
    bench: Bench, hand: HandAt, most: int, seconds: float, heard: Sequence[pb.EventKey] = ()
) -> list[pb.EventsResponse]:
    """What is said of it within some seconds, as soon as there is so much of it."""
    asked = pb.EventsRequest(hand_ids=[hand.hand_id], acknowledged=heard)
    said: list[pb.EventsResponse] = []
    with bench.waits.of("Events"):
        try:
            async with asyncio.timeout(seconds):
                while len(said) < most:  # an answer may end at any time, without any
                    with held(bench.stub.Events(asked)) as stream:
                        async for each in stream:
                            said.append(each)
                            if len(said) == most:
                                break
                    asked = pb.EventsRequest(hand_ids=[hand.hand_id])
                    await asyncio.sleep(0.05)  # a server that answers at once is not flooded
        except TimeoutError:
            pass  # that is all there is
    return said


def _check(bench: Bench, hand: HandAt, said: pb.EventsResponse) -> None:
    must(_ID.fullmatch(said.event_id) is not None, f"its id is {said.event_id[:99]!r}", _EVENT)
    must(_KIND.fullmatch(said.kind) is not None, f"its kind is {said.kind[:99]!r}", _EVENT)
    must(len(said.data) <= _DATA_MAX, f"its data has {len(said.data)} bytes", _EVENT)
    try:
        data = json.loads(said.data or b"{}")
    except ValueError:
        data = None
    must(isinstance(data, dict), f"its data is {said.data[:99]!r}", _EVENT)
    # A server that is no daemon may leave it out: it was asked of one hand.
    known = {hand.hand_id} if "claim" in bench.subject.capabilities else {hand.hand_id, ""}
    change = "Answer only what is asked for: events of the hand_ids of the request."
    must(said.hand_id in known, f"it is of hand {said.hand_id[:99]!r}", change)
