"""Ending what runs: time limits, cancels and background jobs, down to the last process."""

import asyncio

from carpal.v1 import hand_pb2 as pb
from carpal.verdict import equal, must
from hands.conformance.bench import Bench, number
from hands.conformance.group import Group
from hands.conformance.own import processes_of

shell = Group("shell")

_LIMIT = 1.0
"""Seconds that the calls here are given."""
_SEEN = 0.7
"""Seconds for a call in the background to be answered, beyond its own."""


def _escaping(mark: str) -> str:
    """Processes that do all there is to outlive their call."""
    return (
        f"trap '' TERM; sleep {mark} & setsid sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 &"
        f" (setsid sh -c \"trap '' TERM; sleep {mark} & sleep {mark}\" &);"
        f" echo up; while :; do sleep {mark}; done"
    )


@shell("h30", alone=True)
async def timed_out(bench: Bench) -> None:
    """A time limit ends the whole tree within 1 s, and the next call works."""
    hand, mark = await bench.hand(), number()
    for more in ({}, {"limit": _LIMIT}):
        given = {"command": _escaping(mark)}
        if not more:
            given["timeout_ms"] = int(_LIMIT * 1000)  # type: ignore[assignment]
        answer = await hand.run("bash", given, **more)
        answer.ended(pb.OUTCOME_TIMED_OUT).within(_LIMIT + bench.slow(1.0))
        must(answer.seconds >= _LIMIT, f"it was ended after {answer.seconds:.1f} s")
        equal("processes left", await hand.sleeping(mark), 0)


@shell("h31", alone=True)
async def cancelled(bench: Bench) -> None:
    """A cancel without grace ends the whole tree within 0.5 s, and the next call works."""
    hand, mark = await bench.hand(), number()
    call = await hand.begin_sh(_escaping(mark)).says(b"up")
    loop = asyncio.get_running_loop()
    asked = loop.time()
    await asyncio.gather(*(hand.cancel(call.call_id) for _ in range(3)))
    answer = (await call.answer()).ended(pb.OUTCOME_CANCELLED)
    took = loop.time() - asked
    must(took <= bench.slow(0.5), f"took {took:.2f} s")
    must("up" in answer.text, "what it had said is missing")
    equal("processes left", await hand.sleeping(mark), 0)


@shell("h31")
async def cancelled_with_grace(bench: Bench) -> None:
    """A cancel asks first: within its grace a command may still clean up."""
    hand = await bench.hand()
    command = "trap 'echo cleaned > cleaned; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    call = await hand.begin_sh(command).says(b"up")
    await hand.cancel(call.call_id, grace=bench.slow(5.0))
    (await call.answer()).ended(pb.OUTCOME_CANCELLED)
    equal("what it did", (await hand.sh("cat cleaned")).text, "cleaned\n")


@shell("h32", "h03", alone=True)
async def in_the_background(bench: Bench) -> None:
    """A background job holds up no call, is counted, lives on, and writes into no other result."""
    hand, mark = await bench.hand(), number()
    answer = await hand.sh(f"(sleep 0.3; echo late; exec sleep {mark}) & echo up")
    answer.ended(pb.OUTCOME_OK, 0).within(bench.slow(1.0 + _SEEN))
    must(answer.text.startswith("up\n"), f"the text is {answer.text!r}")
    must(answer.result.background >= 1, "the job is not counted")
    must("background" in answer.text, "the text does not say that something runs")
    later = await hand.sh("sleep 0.6; echo mine")
    equal("the next result", later.text, "mine\n")
    equal("jobs then", (later.result.background, await hand.sleeping(mark)), (1, 1))
    seen = bool(processes_of(mark))
    await hand.release()
    if seen:
        equal("processes left after the release", processes_of(mark), [])


@shell("h32", "h03", alone=True)
async def noisy_in_the_background(bench: Bench) -> None:
    """A server in the background that goes on writing is not waited for."""
    hand = await bench.hand()
    answer = await hand.sh("(setsid sh -c 'while sleep 0.02; do echo .; done' &); echo up")
    answer.ended(pb.OUTCOME_OK, 0).within(bench.slow(1.0 + _SEEN))
    must(answer.text.startswith("up\n"), f"the text is {answer.text[:100]!r}")
    await hand.works()
