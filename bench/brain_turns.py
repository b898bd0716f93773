"""From a message's commit to the model's request, with no hand and with fifty; and a turn's log."""

import asyncio

from bench.model import HANDS, MANY_HANDS
from bench.whole import Whole, process_hand, seconds

_PAUSE = 0.05
"""Seconds between turns: nobody answers in the very moment in which a turn is over."""
Waits = dict[str, list[float]]


async def overhead(it: Whole, turns: int) -> Waits:
    """Milliseconds of so many turns each: of new sessions, of one without hands, of one with 50.

    They take turns, since machines wander. Two before that are not counted.
    """
    bare, _ = await it.create("hello")
    many, _ = await it.create(MANY_HANDS, {name: process_hand() for name in HANDS})
    await it.idle([bare, many])
    made = await it.events(many, types=("hand.provisioned",))
    if len(made) != len(HANDS):
        raise RuntimeError(f"only {len(made)} of {len(HANDS)} hands came to exist")
    waits: Waits = {"a new session": [], "no hand": [], "50 hands": []}
    for turn in range(-2, turns):
        took = (
            await _first(it, f"new-{turn + 2}"),
            await _next(it, bare, f"bare-{turn + 2}"),
            await _next(it, many, f"many-{turn + 2}"),
        )
        if turn >= 0:
            for each, wait in zip(waits.values(), took, strict=True):
                each.append(1000 * wait)
    return waits


async def _first(it: Whole, mark: str) -> float:
    made, said = await it.create(f"bench:{mark}", {"shell": process_hand()})
    await it.idle([made])
    await asyncio.sleep(_PAUSE)
    return (await it.model.came())[mark] - said


async def _next(it: Whole, session_id: str, mark: str) -> float:
    said = await it.say(session_id, f"bench:{mark}")
    await it.idle([session_id], said.position)
    await asyncio.sleep(_PAUSE)
    return (await it.model.came())[mark] - seconds(said)


async def log_growth(it: Whole, calls: int) -> float:
    """Bytes of log that a call costs in the second half of one turn, over the first half."""
    text = "\n".join(["$ true"] * calls)
    made, _ = await it.create(text, {"shell": process_hand()})
    await it.idle([made])
    log = await it.events(made)
    ends = [n for n, event in enumerate(log) if event.type == "agent.tool_result"]
    if len(ends) != calls:
        raise RuntimeError(f"{len(ends)} of {calls} calls have a result")
    # From the first result on, so that what opens a session counts for neither half.
    middle = ends[calls // 2]
    first = sum(event.ByteSize() for event in log[ends[0] + 1 : middle + 1])
    second = sum(event.ByteSize() for event in log[middle + 1 : ends[-1] + 1])
    each = first / (calls // 2), second / (calls - 1 - calls // 2)
    took = [seconds(log[end]) for end in (ends[0], middle, ends[-1])]
    print(
        f"one turn of {calls} calls: {each[0]:,.0f} then {each[1]:,.0f} bytes of log a call, "
        f"{1000 * (took[1] - took[0]) / (calls // 2):.0f} then "
        f"{1000 * (took[2] - took[1]) / (calls - 1 - calls // 2):.0f} ms a call",
        flush=True,
    )
    return each[1] / each[0]
