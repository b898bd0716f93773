"""What breaks around a call: streams, connections, the hand, and the server itself."""

import asyncio

import grpc

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Skipped, equal, must, refused
from hands.conformance.bench import Bench, Stopwatch, number
from hands.conformance.group import CONTRACT, Group
from hands.conformance.hand import Answer, HandAt
from hands.conformance.own import processes_of
from hands.inside import tree

contract = Group(CONTRACT)

_SLOW = "echo 1; sleep 0.5; echo 2; echo ran >> log; cat log"
_CUT = (
    "When the stream of an Execute is cut under you (in Node.js `cancelled`, in Go "
    "`Context().Done()`), stop the call and all it started, as for Cancel."
)
_BEGUN = 0.3
"""Seconds in which a call that lasts has begun."""
_STOPS = 5.0
"""Seconds for a call to end that nobody watches any more."""
_LOST = 2.0
"""Seconds for a call to be called lost."""
_GONE = 5.0
"""Seconds for a hand to be gone that its server did not take up again."""


@contract("h43", "h05", needs=("shell", "replay"))
async def stream_cut(bench: Bench) -> None:
    """A call whose stream is cut goes on, and who asks again has all its output and result."""
    hand = await bench.hand()
    request = hand.request("bash", {"command": _SLOW})
    (await hand.ask(request).says(b"1\n")).cut()
    answer = (await hand.ask(request).answer()).ended(pb.OUTCOME_OK)
    equal("the result", answer.text, "1\n2\nran\n")
    equal("the output", answer.output, b"1\n2\nran\n")


@contract("h05", alone=True)
async def cut_and_stopped(bench: Bench) -> None:
    """A call whose stream is cut stops as after Cancel, unless the type claims `replay`."""
    if "replay" in bench.subject.capabilities:
        return  # its calls go on, which checks of `replay` look at
    hand, long = await bench.hand(), bench.long_call()
    stopped = hand.begin(*long)
    await asyncio.sleep(bench.slow(_BEGUN))  # no type says when its call is at work
    await hand.cancel(stopped.call_id)
    async with bench.waits.within(_STOPS, "a call did not end after Cancel", _CUT):
        await stopped.answer()
    stay = _below(bench)  # such as a shell that the hand keeps
    call = hand.begin(*long)
    await asyncio.sleep(bench.slow(_BEGUN))  # no type says when its call is at work
    started = _below(bench) - stay
    call.cut()
    otherwise = "the hand's next call had no result after the stream of the one before was cut"
    async with bench.waits.within(_STOPS, otherwise, _CUT):
        await hand.run(*bench.plain_call())
    otherwise = "what a call had started still runs after its stream was cut"
    async with bench.waits.within(_STOPS, otherwise, _CUT):
        while _below(bench) & started:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.02)


def _below(bench: Bench) -> set[tuple[int, int]]:
    """Processes that the server started and that live, by pid and start; none of a hidden one."""
    pid = bench.subject.server_pid
    return {(each.pid, each.start) for each in tree.descendants(pid)} if pid else set()


@contract("h43", "h05", needs=("shell", "replay"))
async def connection_cut(bench: Bench) -> None:
    """A call whose connection is cut goes on, and is found over the next one."""
    hand = await bench.hand()
    request = hand.request("bash", {"command": _SLOW})
    await hand.ask(request).says(b"1\n")
    await bench.dial()
    request.output_offset = 2
    answer = (await hand.ask(request).answer()).ended(pb.OUTCOME_OK)
    equal("the result", answer.text, "1\n2\nran\n")
    equal("the output that was not read", answer.output, b"2\nran\n")


@contract("h43", needs=("shell", "replay"))
async def nobody_listens(bench: Bench) -> None:
    """A call that nobody listens to fills no pipe: it ends, and its result is there."""
    hand = await bench.hand()
    request = hand.request("bash", {"command": "echo 1; head -c 4000000 /dev/zero; echo ran > ran"})
    (await hand.ask(request).says(b"1\n")).cut()
    equal("what the next call finds", (await hand.sh("cat ran")).text, "ran\n")
    answer = await hand.ask(request).answer()
    equal("bytes of output", answer.ended(pb.OUTCOME_OK).result.output_bytes, 4_000_002)


@contract("h46", needs=("shell",), alone=True)
async def hand_killed(bench: Bench) -> None:
    """Of a hand that is killed, its call is lost within 2 s, and later ones do not hang."""
    own, hand = bench.own, await bench.hand()
    mark = number()
    call = await hand.begin_sh(f"setsid sleep {mark} & echo up; sleep {mark}").says(b"up")
    if not own.kill_hand(hand.hand_id):
        raise Skipped("nothing on this machine names the hand, so it cannot be killed")
    watch = Stopwatch()
    answer = await call.answer()
    must(watch.seconds <= bench.slow(_LOST), f"said so after {watch.seconds:.1f} s")
    answer.ended(pb.OUTCOME_LOST)
    equal("processes left", processes_of(mark), [])
    with refused(Reason.HAND_GONE, Reason.HAND_NOT_FOUND):
        await hand.run(*bench.plain_call())


@contract("h44", needs=("shell", "replay"), alone=True)
async def server_killed(bench: Bench) -> None:
    """A server that is killed has its hand back with all its state, or the hand is gone in 5 s."""
    own, hand = bench.own, await bench.hand()
    mark = number()
    await hand.sh(f"mkdir d; cd d; export A=1; sleep {mark} & :")
    request = hand.request("bash", {"command": _SLOW})
    await hand.ask(request).says(b"1\n")
    await own.kill()
    await own.start()
    await bench.dial()
    answer = await _later(hand, request)
    if answer is None or answer.result.outcome in (pb.OUTCOME_LOST, pb.OUTCOME_INTERRUPTED):
        await asyncio.sleep(bench.slow(_GONE))  # the time that a lost hand may take to be gone
        equal("processes left", processes_of(mark), [])
        return
    equal("the result", answer.ended(pb.OUTCOME_OK).text, "1\n2\nran\n")
    equal("the output", answer.output, b"1\n2\nran\n")
    kept = await hand.sh('basename "$PWD"; echo $A; cat log')
    equal("the state", kept.ended(pb.OUTCOME_OK).text, "d\n1\nran\n")


async def _later(hand: HandAt, request: pb.ExecuteRequest) -> Answer | None:
    """A call asked about after all that; None when its hand is gone."""
    try:
        return await hand.ask(request).answer()
    except grpc.aio.AioRpcError as error:
        if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
            return None
        raise


@contract("h44", alone=True)
async def server_killed_between_calls(bench: Bench) -> None:
    """A hand that outlives its server, as `adopt` says, answers the next one; another is gone."""
    own, hand = bench.own, await bench.hand()
    await hand.run(*bench.plain_call())
    await own.kill()
    await own.start()
    await bench.dial()
    if "adopt" in bench.subject.capabilities:
        await hand.run(*bench.plain_call())
    else:
        with refused(Reason.HAND_GONE, Reason.HAND_NOT_FOUND):
            await hand.run(*bench.plain_call())


@contract("h44", alone=True)
async def killed_while_provisioning(bench: Bench) -> None:
    """A server that is killed while it makes a hand leaves none, and makes it when asked again."""
    own = bench.own
    for wait in (0.0, 0.02, 0.06, 0.15):
        request = bench.order()
        stream = bench.stub.Provision(request)
        await asyncio.sleep(wait)  # into the making, whose steps nobody outside sees
        await own.kill()
        stream.cancel()
        await own.start()
        await bench.dial()
        await bench.provision(request)
        hand = bench.at(request)
        await hand.run(*bench.plain_call())
        await hand.release()
        equal("left behind", own.remains(hand.hand_id), [])


@contract("h44", needs=("shell",), alone=True)
async def server_stopped(bench: Bench) -> None:
    """A server that stands still for a while holds up no call, and loses nothing of it."""
    own, hand = bench.own, await bench.hand()
    call = await hand.begin_sh("echo 1; sleep 0.3; seq 20000").says(b"1\n")
    own.pause()
    try:
        await asyncio.sleep(1.0)  # how long it stands still
    finally:
        own.go_on()
    answer = (await call.answer()).ended(pb.OUTCOME_OK)
    must(answer.output.endswith(b"\n20000\n"), "the end of its output is missing")
    equal("bytes of output", len(answer.output), answer.result.output_bytes)
