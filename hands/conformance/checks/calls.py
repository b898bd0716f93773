"""Calls by their ids: run once, replayed, in order, cancelled before they come, fenced."""

import asyncio

from carpal.ids import new_id
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import equal, must, refused
from hands.conformance.bench import Bench
from hands.conformance.group import CONTRACT, Group

contract = Group(CONTRACT)

_COUNT = "echo ran >> log; cat log"
"""Says how often it ran."""
_NOT_LONG = "the call ended well: it was not stopped, or the one of --long does not last"
_LONGER = (
    "Give --long a call that lasts a minute or more; if it does, have Cancel stop it, as "
    "OUTCOME_CANCELLED."
)
_STOP = "Have Cancel stop the call, and end its Execute with a `result` of OUTCOME_CANCELLED."
_CANCELLED = (
    "Give a call that Cancel stopped the outcome OUTCOME_CANCELLED; if it ended before, give "
    "--long one that lasts."
)
_AGAIN = "Keep each call's output and result by its call_id, and answer the same Execute from them."
_LISTED = (
    "List in open_call_ids what runs, and in unacknowledged_call_ids what has a result, until "
    "Acknowledge names it."
)
_GOES_ON = "Run a call apart from the stream that asked for it, so that it goes on unwatched."
_BEGUN = 0.3
"""Seconds in which a call that lasts has begun."""
_STOPPED = 5.0
"""Seconds for a call to end that is cancelled with no grace."""


@contract("h43", needs=("shell", "replay"))
async def runs_once(bench: Bench) -> None:
    """The same call_id again does not run again: it answers the same output and result."""
    hand = await bench.hand()
    request = hand.request("bash", {"command": _COUNT})
    first = await hand.ask(request).answer()
    equal("the result", first.text, "ran\n")
    for _ in range(2):
        again = await hand.ask(request).answer()
        equal("the result again", again.result, first.result)
        equal("the output again", again.output, first.output)
    request.input = b'{"command": "echo other"}'
    with refused(Reason.ID_REUSED):
        await hand.ask(request).answer()
    equal("what ran", (await hand.sh("cat log")).text, "ran\n")


@contract("h43", needs=("shell", "replay"))
async def runs_once_at_once(bench: Bench) -> None:
    """One call sent five times at once runs once, and all five have its result."""
    hand = await bench.hand()
    request = hand.request("bash", {"command": f"sleep 0.2; {_COUNT}"})
    answers = await asyncio.gather(*(hand.ask(request).answer() for _ in range(5)))
    equal("what each was given", [answer.text for answer in answers], ["ran\n"] * 5)


@contract("h43", needs=("shell", "replay"))
async def from_an_offset(bench: Bench) -> None:
    """A call that is asked for from an offset gives its output from there."""
    hand = await bench.hand()
    request = hand.request("bash", {"command": "echo 0123456789"})
    await hand.ask(request).answer()
    request.output_offset = 4
    equal("the output", (await hand.ask(request).answer()).output, b"456789\n")


@contract("h42", needs=("shell",))
async def in_order(bench: Bench) -> None:
    """Calls that come together on one hand run one after the other, unmixed."""
    hand = await bench.hand()
    command = "echo b{n} >> log; sleep 0.05; echo e{n} >> log"
    await asyncio.gather(*(hand.sh(command.format(n=n)) for n in range(6)))
    lines = (await hand.sh("cat log")).text.split()
    pairs = {(begun, ended) for begun, ended in zip(lines[::2], lines[1::2], strict=True)}
    equal("what each wrote", pairs, {(f"b{n}", f"e{n}") for n in range(6)})


@contract("h42", needs=("shell",))
async def apart(bench: Bench) -> None:
    """Two hands run at the same time, and share neither files, nor folder, nor environment."""
    one, other = await bench.hand(), await bench.hand()
    waiting = await one.begin_sh("export A=1; echo mine > f; mkdir d; cd d; echo up; sleep 2").says(
        b"up"
    )
    answer = await other.sh('echo "[$A]"; ls')
    equal("what the other sees", answer.ended(pb.OUTCOME_OK).text, "[]\n")
    must(answer.seconds < bench.slow(2.0), "the other hand waited for this one")
    waiting.cut()


@contract("h31", daemons=True)
async def cancelled_before(bench: Bench) -> None:
    """A call that was cancelled before it came is refused when it comes, however often."""
    hand = await bench.hand()
    call_id = new_id("call")
    for _ in range(2):
        answer = await hand.cancel(call_id)
        equal("the state", pb.CallState.Name(answer.state), "CALL_STATE_TOMBSTONE")
    for _ in range(2):
        with refused(Reason.CALL_CANCELLED):
            await hand.run(*bench.plain_call(), call_id=call_id)


@contract("h31", needs=("replay",))
async def cancelled_after(bench: Bench) -> None:
    """Cancelling a call that has its result changes nothing."""
    hand = await bench.hand()
    request = hand.request(*bench.plain_call())
    first = await hand.ask(request).answer()
    answer = await hand.cancel(request.call_id)
    if "claim" in bench.subject.capabilities:  # else nobody asks for it
        equal("the state", pb.CallState.Name(answer.state), "CALL_STATE_TERMINAL")
    equal("the result", (await hand.ask(request).answer()).result, first.result, _AGAIN)


@contract("h31")
async def cancelled_while_it_runs(bench: Bench) -> None:
    """A call that is cancelled while it runs ends as cancelled, and the hand takes the next one."""
    hand = await bench.hand()
    call = hand.begin(*bench.long_call())
    await asyncio.sleep(bench.slow(_BEGUN))
    await hand.cancel(call.call_id)
    otherwise = "the call did not end after Cancel"
    async with bench.waits.within(_STOPPED, otherwise, _STOP):
        answer = await call.answer()
    outcome = answer.result.outcome
    must(outcome != pb.OUTCOME_OK, _NOT_LONG, _LONGER)
    got = pb.Outcome.Name(outcome)
    told = f"a call that was cancelled ended as {got}: {answer.text[-200:]!r}"
    must(outcome == pb.OUTCOME_CANCELLED, told, _CANCELLED)
    await hand.run(*bench.plain_call())


@contract("h43", needs=("replay",))
async def asked_again(bench: Bench) -> None:
    """A call that is asked for again answers as before, and is listed until it is acknowledged."""
    hand = await bench.hand()
    request = hand.request(*bench.plain_call())
    first = await hand.ask(request).answer()
    again = await hand.ask(request).answer()
    equal("the result again", again.result, first.result, _AGAIN)
    equal("the output again", again.output, first.output, _AGAIN)
    listed = (await hand.listed()).unacknowledged_call_ids
    equal("calls to acknowledge", listed, [request.call_id], _LISTED)
    await hand.acknowledge(request.call_id)
    listed = (await hand.listed()).unacknowledged_call_ids
    equal("calls to acknowledge, then", listed, [], _LISTED)


@contract("h43", needs=("replay",))
async def left_and_asked_again(bench: Bench) -> None:
    """A call that nobody watches goes on, is listed as open, and can be asked for again."""
    hand = await bench.hand()
    request = hand.request(*bench.long_call())
    call = hand.ask(request)
    async with bench.waits.within(_STOPPED, "ListHands did not list the call as open", _LISTED):
        while not (there := await hand.listed()).open_call_ids:
            must(not there.unacknowledged_call_ids, _NOT_LONG, _LONGER)
            await asyncio.sleep(0.02)  # nothing announces it
    call.cut()
    await bench.dial()
    equal("open calls", (await hand.listed()).open_call_ids, [request.call_id], _GOES_ON)
    await hand.cancel(request.call_id)
    async with bench.waits.within(_STOPPED, "the call did not end after Cancel", _STOP):
        (await hand.ask(request).answer()).ended(pb.OUTCOME_CANCELLED)


@contract("h31", needs=("shell", "claim"))
async def cancelled_in_line(bench: Bench) -> None:
    """A call that waits for its turn is cancelled at once, and never runs."""
    hand = await bench.hand()
    first = await hand.begin_sh("echo up; sleep 600").says(b"up")
    second = hand.begin_sh("echo ran > ran")
    await hand.until(second.call_id, pb.CALL_STATE_RUNNING)
    await hand.cancel(second.call_id)
    (await second.answer()).ended(pb.OUTCOME_CANCELLED)
    await hand.cancel(first.call_id)
    (await first.answer()).ended(pb.OUTCOME_CANCELLED)
    equal("what is there", (await hand.sh("[ -e ran ] || echo nothing")).text, "nothing\n")


@contract("h43", needs=("acknowledge", "claim"))
async def acknowledged(bench: Bench) -> None:
    """An acknowledged call keeps its id and outcome, and does not run again."""
    hand = await bench.hand()
    request = hand.request(*bench.plain_call())
    first = await hand.ask(request).answer()
    for _ in range(2):
        await hand.acknowledge(request.call_id)
    (info,) = (await hand.claim(request.call_id)).calls
    equal("the state", pb.CallState.Name(info.state), "CALL_STATE_ACKNOWLEDGED")
    equal("the outcome", info.outcome, first.result.outcome)
    again = await hand.ask(request).answer()
    equal("the outcome again", again.result.outcome, first.result.outcome)
    equal("output that was freed", again.output, b"")


@contract("h43", needs=("shell", "acknowledge"))
async def acknowledged_too_early(bench: Bench) -> None:
    """A call without a result cannot be acknowledged."""
    hand = await bench.hand()
    call = await hand.begin_sh("echo up; sleep 600").says(b"up")
    with refused(Reason.CALL_RUNNING):
        await hand.acknowledge(call.call_id)
    await hand.cancel(call.call_id)
    (await call.answer()).ended(pb.OUTCOME_CANCELLED)


@contract("h43", needs=("claim",))
async def claimed(bench: Bench) -> None:
    """Claim says how each call stands, in the order asked, and starts none."""
    hand = await bench.hand()
    request = hand.request(*bench.plain_call())
    await hand.ask(request).answer()
    ids = (new_id("call"), request.call_id)
    wanted = [pb.CALL_STATE_UNKNOWN, pb.CALL_STATE_TERMINAL]
    for _ in range(2):
        answer = await hand.claim(*ids)
        equal("the calls", [call.call_id for call in answer.calls], list(ids))
        equal("their states", [call.state for call in answer.calls], wanted)
        must(bool(answer.journal_id and answer.boot_id), "journal id or boot id is missing")


@contract("h43", needs=("claim",))
async def fenced(bench: Bench) -> None:
    """Once a driver of a higher epoch claimed the hand, one of a lower is refused everything."""
    hand = await bench.hand()
    await hand.claim(epoch=7)
    with refused(Reason.STALE_EPOCH):
        await hand.run(*bench.plain_call())
    with refused(Reason.STALE_EPOCH):
        await hand.cancel("call")
    with refused(Reason.STALE_EPOCH):
        await hand.claim()
    with refused(Reason.STALE_EPOCH):
        await hand.release()
    hand.driver.epoch = 7
    await hand.run(*bench.plain_call())
