"""Making hands and ending them: once, by their ids, and within limits that are kept."""

import json

import grpc

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Failed, Skipped, equal, must, refused
from hands.conformance.bench import Bench, Stopwatch
from hands.conformance.group import CONTRACT, Group

contract = Group(CONTRACT)

_READY = 30.0
"""Seconds for a hand to be ready."""
_GONE = 5.0
"""Seconds for one to be gone."""
LIMITS = {"memory_bytes": 512 * 2**20, "disk_bytes": 256 * 2**20, "processes": 512, "cpus": 1}
"""Limits that any hand is of use within; threads are counted as processes."""
_BAD_ID = "../no"
_SOONER = "Do what takes long before the first hand is asked for, so that one is ready within 30 s."
_NO_HAND = (
    "Refuse an Execute with the status NOT_FOUND when its hand_id was never made or is released."
)
_ENDED = "Set `ended` to true in each answer of Release, also when there is no such hand."


@contract("h23", alone=True)
async def ready_in_time(bench: Bench) -> None:
    """A provision ends with one result, in time, and the hand then runs a call."""
    watch = Stopwatch()
    hand = await bench.hand()
    must(watch.seconds <= bench.slow(_READY), f"ready after {watch.seconds:.1f} s", _SOONER)
    await hand.run(*bench.plain_call())


@contract("h23", "h10")
async def limit_refused(bench: Bench) -> None:
    """A limit that cannot be enforced here is a refusal that names it, and leaves no hand."""
    if bench.subject.health is None:
        raise Skipped("the server offers no Probe, which says what it does not enforce")
    for limit, value in LIMITS.items():
        request = bench.order()
        setattr(request.limits, limit, value)
        if bench.subject.enforces(limit):
            await bench.provision(request)
            await bench.at(request).release()
            continue
        with refused(Reason.LIMIT_NOT_ENFORCEABLE, says=limit):
            await bench.provision(request)
        with refused(Reason.HAND_NOT_FOUND):
            await bench.at(request).run(*bench.plain_call())
        request.ClearField("limits")
        await bench.provision(request)  # the id is free
        await bench.at(request).release()


@contract(daemons=True)
async def config_refused(bench: Bench) -> None:
    """A config that does not fit is refused, and the refusal names what does not."""
    schema = json.loads(bench.subject.type.config_schema or b"{}")
    request = bench.order()
    request.config = b"nonsense"
    with refused(Reason.INVALID_FIELD, field="config"):
        await bench.provision(request)
    if schema.get("additionalProperties") is False:
        with refused(Reason.INVALID_FIELD, field="config.no_such_field"):
            await bench.provision(bench.order(no_such_field=1))


@contract("h43", daemons=True)
async def provisioned_again(bench: Bench) -> None:
    """The same provision again answers the first result; another under its id is ID_REUSED."""
    request = bench.order()
    first = await bench.provision(request)
    equal("the result again", await bench.provision(request), first)
    request.orphan_deadline.seconds += 1
    with refused(Reason.ID_REUSED):
        await bench.provision(request)


@contract("h43", daemons=True)
async def provisioned_at_once(bench: Bench) -> None:
    """A provision whose caller went away goes on, and is found by who asks again."""
    request = bench.order()
    stream = bench.stub.Provision(request)
    await stream.initial_metadata()
    await bench.dial()
    await bench.provision(request)
    await bench.at(request).run(*bench.plain_call())


@contract(daemons=True)
async def unknown_hand(bench: Bench) -> None:
    """Nothing is done on a hand that does not exist, or is another session's."""
    hand = bench.at(bench.order())
    with refused(Reason.HAND_NOT_FOUND):
        await hand.run(*bench.plain_call())
    with refused(Reason.HAND_NOT_FOUND):
        await hand.cancel("call")
    there = await bench.hand()
    there.driver = bench.driver()
    with refused(Reason.HAND_NOT_FOUND):
        await there.run(*bench.plain_call())


@contract(daemons=True)
async def bad_ids(bench: Bench) -> None:
    """An id that could be a path is refused by the field that it came in."""
    request = bench.order()
    request.hand_id = _BAD_ID
    with refused(Reason.INVALID_FIELD, field="hand_id"):
        await bench.provision(request)
    hand = await bench.hand()
    with refused(Reason.INVALID_FIELD, field="call_id"):
        await hand.run(*bench.plain_call(), call_id=_BAD_ID)
    with refused(Reason.INVALID_FIELD, field="call_id"):
        await hand.cancel(_BAD_ID)


@contract("h45", daemons=True, alone=True)
async def released(bench: Bench) -> None:
    """A release ends the hand within 5 s; again it is no error, and the id is never used again."""
    request = bench.order()
    await bench.provision(request)
    hand, watch = bench.at(request), Stopwatch()
    equal("ended", (await hand.release()).ended, True)
    must(watch.seconds <= bench.slow(_GONE), f"released after {watch.seconds:.1f} s")
    equal("ended, again", (await hand.release()).ended, True)
    with refused(Reason.HAND_NOT_FOUND):
        await hand.run(*bench.plain_call())
    with refused(Reason.HAND_GONE):
        await bench.provision(request)
    never = bench.at(bench.order())
    equal("ended, of one that never was", (await never.release()).ended, True)


@contract("h45")
async def ended(bench: Bench) -> None:
    """A call on a hand that was released, or never was, is NOT_FOUND; to end it again no error."""
    there, never = await bench.hand(), bench.at(bench.order())
    equal("ended", (await there.release()).ended, True, _ENDED)
    for hand in (there, never):
        try:
            await hand.run(*bench.plain_call())
        except grpc.aio.AioRpcError as error:
            equal("the status", error.code().name, grpc.StatusCode.NOT_FOUND.name, _NO_HAND)
        else:
            raise Failed("the call was not refused", _NO_HAND)
        equal("ended, again", (await hand.release()).ended, True, _ENDED)


@contract("h45", needs=("shell",), alone=True)
async def nothing_left(bench: Bench) -> None:
    """A release in the middle of a call leaves no process, mount, cgroup or folder behind."""
    own, hand = bench.own, await bench.hand()
    call = await hand.begin_sh("setsid sleep 600 & (sleep 600 &) ; echo up; sleep 600").says(b"up")
    must(bool(own.remains(hand.hand_id)), "the hand is not to be seen from here")
    groups = own.cgroups_of(hand.hand_id)
    await hand.release()
    answer = await call.answer()
    must(answer.result.outcome in (pb.OUTCOME_CANCELLED, pb.OUTCOME_LOST), "the call went well")
    equal("left behind", own.remains(hand.hand_id), [])
    equal("control groups left", [str(group) for group in groups if group.is_dir()], [])
