"""A hand's screen: a person watches it beside the calls, takes control, and gives it back."""

import asyncio
import json
import struct

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Failed, equal, must, refused
from hands.conformance.bench import Bench
from hands.conformance.group import Group
from hands.conformance.inside import Person, entered

view = Group("view")
control = Group("control", needs=("view",))

_QUIET = 0.7
"""Seconds in which nothing comes, and a call that is held does not begin."""
_FRAME = struct.Struct(">cI")
"""Before the data of a frame: its letter, and how many bytes follow."""
_PICTURES = {b"P": ("image/png", b"\x89PNG\r\n\x1a\n"), b"J": ("image/jpeg", b"\xff\xd8\xff")}
"""Letters of pictures, with their kind and how such a picture begins."""
_PICTURE_MAX = 2 * 1024 * 1024
_EVENT = b"E"
_FAR = 20_000
"""Pixels: as far away as an event may say."""
_SIDE_MAX = 10_000
"""Pixels each way of what a person's browser is given."""
_SHOWS = "Send a frame `P` or `J` with a whole PNG or JPEG, soon after a `view` tunnel is open."
_IS = "Give the picture as the kind that its frame says, of at most 10,000 pixels each way."
_FREE = "Begin the hand's calls once the person who had control has left, whatever is still down."


@view()
async def shows_itself(bench: Bench) -> None:
    """Who watches a hand is sent a picture of it, a PNG or a JPEG that a browser can show."""
    hand = await bench.hand()
    async with entered(bench, hand, "view", options={}) as person:
        letter, data = await _picture(person)
    kind, begins = _PICTURES[letter]
    must(data.startswith(begins), f"what it shows is no {kind}", _IS)
    if letter == b"P":
        must(len(data) > 24, "what it shows is cut", _IS)
        width, height = struct.unpack(">II", data[16:24])
        must(0 < max(width, height) <= _SIDE_MAX, f"it shows {width}x{height} pixels", _IS)


@view()
async def shows_the_next_once_seen(bench: Bench) -> None:
    """While the last picture was not seen no other is sent."""
    hand = await bench.hand()
    async with entered(bench, hand, "view", options={}) as person:
        await _picture(person)
        there = len(person.data)
        await person.quiet(bench.slow(_QUIET))
        must(len(person.data) == there, "another picture came before the last was seen")


@view()
async def calls_go_on_beside(bench: Bench) -> None:
    """A call runs while a person watches, also one who takes no picture any more."""
    hand = await bench.hand()
    async with entered(bench, hand, "view", options={}) as person:
        await _picture(person)
        await hand.run(*bench.plain_call())


@view()
async def nobody_watches_no_hand(bench: Bench) -> None:
    """Nobody watches a hand that is not there, or is another session's."""
    never, there = bench.at(bench.order()), await bench.hand()
    there.driver = bench.driver()
    for hand in (never, there):
        with refused(Reason.HAND_NOT_FOUND):
            async with entered(bench, hand, "view", options={}):
                pass


@control()
async def waits_for_control(bench: Bench) -> None:
    """While a person has control no call begins; when they leave it does, with what is down up."""
    hand = await bench.hand()
    async with entered(bench, hand, "control", options={}, take=True) as person:
        await _does(person, type="key", key="Shift", down=True)
        await _does(person, type="pointer", x=1, y=1, action="down")
        running = asyncio.create_task(hand.run(*bench.plain_call()))
        try:
            done, _ = await asyncio.wait({running}, timeout=bench.slow(_QUIET))
            must(not done, "a call ran while a person had control")
            await person.done()
            await person.end()
        except BaseException:
            running.cancel()
            await asyncio.wait({running})
            raise
    async with bench.waits.within(20.0, "the call did not run once they had left", _FREE):
        await running


@control()
async def odd_events(bench: Bench) -> None:
    """What is no event, or is done where nothing is, ends neither control nor the hand."""
    hand = await bench.hand()
    async with entered(bench, hand, "control", options={}, take=True) as person:
        for data in (b"[]", b'{"type": "key"}', b"\xff"):
            await person.give(_FRAME.pack(_EVENT, len(data)) + data)
        await _does(person, type="key", key="Nonsense", down=True)
        await _does(person, type="pointer", x=_FAR, y=_FAR)
        await _does(person, type="wheel", x=_FAR, y=_FAR, dx=-_FAR, dy=_FAR)
        await asyncio.sleep(bench.slow(_QUIET))  # nothing announces that it was done
        await person.done()
        equal("what ended it", (await person.end()).problem, "")
    outcome = (await hand.run(*bench.plain_call())).result.outcome
    must(outcome != pb.OUTCOME_LOST, "the hand was lost by it")


async def _picture(person: Person) -> tuple[bytes, bytes]:
    """The letter and the data of the first frame, once it is whole. Failed when there is none."""
    while True:
        if len(person.data) >= _FRAME.size:
            letter, size = _FRAME.unpack_from(person.data)
            if letter not in _PICTURES or size > _PICTURE_MAX:
                raise Failed(f"what it sends is no picture: {letter!r} of {size} bytes", _SHOWS)
            if len(person.data) >= _FRAME.size + size:
                return letter, person.data[_FRAME.size : _FRAME.size + size]
        if person.error:
            words = person.error.decode("utf-8", "replace").splitlines()[0][:200]
            raise Failed(f"it shows nothing, and says: {words}", _SHOWS)
        if (end := await person.more()) is not None:
            raise Failed(f"it ended before it showed anything: {end.problem or 'well'}", _SHOWS)


async def _does(person: Person, **event: object) -> None:
    data = json.dumps(event).encode()
    await person.give(_FRAME.pack(_EVENT, len(data)) + data)
