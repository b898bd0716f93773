"""A person in a hand: a shell, copies, control, and nothing left of them when they leave."""

import asyncio

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Skipped, equal, must, refused
from hands.conformance.bench import Bench, Stopwatch, number
from hands.conformance.group import Group
from hands.conformance.inside import entered
from hands.conformance.own import processes_of

tunnel = Group("tunnel")

_HELD = 0.7
"""Seconds in which a call that is held does not begin."""
_SEEN = 1.0
"""Seconds for what a person started to be seen."""
_GONE = 10.0
"""Seconds for what a person started to be dead, once they left."""


@tunnel()
async def person_in(bench: Bench) -> None:
    """A person's command in a hand gives its output, its errors apart, and its exit code."""
    hand = await bench.hand()
    command = "echo $((20+22)); echo wrong >&2; exit 3"
    async with entered(bench, hand, "shell", options={"command": command}) as person:
        end = await person.end()
    equal("its output", person.data, b"42\n")
    equal("its errors", person.error, b"wrong\n")
    equal("its exit code", end.exit_code, 3)
    await hand.run(*bench.plain_call())


@tunnel()
async def person_types(bench: Bench) -> None:
    """What a person types reaches their command, and the end of it too."""
    hand = await bench.hand()
    async with entered(
        bench, hand, "shell", options={"command": "read -r a; echo [$a]; cat"}
    ) as person:
        await person.give(b"one\n")
        await person.sees(b"[one]\n")
        await person.give(b"two\n")
        await person.done()
        end = await person.end()
    equal("the output", person.data, b"[one]\ntwo\n")
    equal("the exit code", end.exit_code, 0)


@tunnel(needs=("shell",))
async def copied(bench: Bench) -> None:
    """What is copied out of a hand and into it again is the same bytes, and agents see it."""
    hand = await bench.hand()
    (await hand.sh(r"printf 'a\0b\377' > one")).ended(pb.OUTCOME_OK)
    async with entered(bench, hand, "copy", options={"from": "one"}) as person:
        await person.end()
    into = {"to": "two", "name": "two"}
    async with entered(bench, hand, "copy", options=into) as giving:
        await giving.give(person.data)
        await giving.done()
        equal("what was wrong", (await giving.end()).problem, "")
    # By what each image with a shell has; what bash leaves out of bytes, it does of both.
    same = '{ [ "$(cat one; echo .)" = "$(cat two; echo .)" ] && echo same; } 2>/dev/null'
    equal("what came", (await hand.sh(same)).text, "same\n")


@tunnel(needs=("shell",))
async def taken(bench: Bench) -> None:
    """While a person has control of a hand its calls wait, and go on when they leave."""
    hand = await bench.hand()
    async with entered(
        bench, hand, "shell", take=True, options={"command": "echo in; cat"}
    ) as person:
        await person.sees(b"in\n")
        call = hand.begin_sh("echo ran > ran")
        running = asyncio.create_task(call.answer())
        try:
            done, _ = await asyncio.wait({running}, timeout=bench.slow(_HELD))
            must(not done, "a call ran while a person had control")
            await person.done()
            await person.end()
        except BaseException:
            running.cancel()
            await asyncio.wait({running})
            raise
    (await running).ended(pb.OUTCOME_OK)


@tunnel(alone=True)
async def person_leaves_nothing(bench: Bench) -> None:
    """Of a person whose stream is cut nothing goes on: what they started is dead within 10 s."""
    hand, mark = await bench.hand(), number()
    command = f"setsid sleep {mark} & echo up; sleep {mark}"
    async with entered(bench, hand, "shell", options={"command": command}) as person:
        await person.sees(b"up\n")
        watch = Stopwatch()
        while not processes_of(mark):
            if watch.seconds > bench.slow(_SEEN):
                raise Skipped("what runs in the hand is not to be seen from here")
            await asyncio.sleep(0.02)  # nothing announces it
    otherwise = "what a person started goes on who left"
    change = "Kill all that a tunnel started when its stream ends, whoever ended it."
    async with bench.waits.within(_GONE, otherwise, change):
        while processes_of(mark):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.02)
    await hand.run(*bench.plain_call())


@tunnel()
async def nobody_in_no_hand(bench: Bench) -> None:
    """Nobody gets into a hand that is not there, or is another session's."""
    never, there = bench.at(bench.order()), await bench.hand()
    there.driver = bench.driver()
    for hand in (never, there):
        with refused(Reason.HAND_NOT_FOUND):
            async with entered(bench, hand, "shell", options={"command": "true"}):
                pass
