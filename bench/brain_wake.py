"""Waking a session whose log is long, beside one whose log is short."""

import asyncio
import json
import statistics
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.whole import SECONDS, Whole, seconds
from brain.context import compact
from brain.session.entries import COMPACTED
from brain.session.store_reads import read_events
from brain.session.waking import Waking
from carpal.client import dial
from carpal.identity import Role
from carpal.ids import new_id
from carpal.tls import IdentityFiles
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionStub

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

_GROUP = 500
_IN_FLIGHT = 4
_PAUSE = 0.05
_TURN = 10
"""Events of a turn."""
_AFTER = 100
"""Events after the cut."""
Json = dict[str, Any]


async def wakes(it: Whole, events: int, count: int) -> dict[str, float]:
    """How much longer a log of so many events takes to wake than one of 1,000, both compacted.

    And than one of 1,000 that was not. The figure is the worse of both.
    """
    identity = IdentityFiles(it.world.state / "brain" / "b1" / "identity")
    address = it.world.running["sessiond"].facts["address"]
    async with dial(address, Role.SESSIOND, identity) as channel:
        brain = SessionStub(channel)
        made = {
            "long": await _session(it, brain, events, cut=True),
            "short": await _session(it, brain, 1_000, cut=True),
            "whole": await _session(it, brain, 1_000, cut=False),
        }
    took: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(-1, count):
        for name, session_id in made.items():
            mark = f"wake-{name}-{turn + 1}"
            said = await it.say(session_id, f"bench:{mark}")
            await it.idle([session_id], said.position)
            await asyncio.sleep(_PAUSE)
            if turn >= 0:
                took[name].append((await it.model.came())[mark] - seconds(said))
    each = {name: 1000 * statistics.median(times) for name, times in took.items()}
    print(
        f"a message wakes a compacted session of {events:,} events in {each['long']:.1f} ms, "
        f"one of 1,000 in {each['short']:.1f} ms, one of 1,000 that was not compacted in "
        f"{each['whole']:.1f} ms",
        flush=True,
    )
    return {"wake_100k_vs_1k": each["long"] / min(each["short"], each["whole"])}


async def _session(it: Whole, brain: "SessionAsyncStub", events: int, *, cut: bool) -> str:
    """A session with so many events, as a brain would have left it; none drives it."""
    session_id = new_id("sesn")
    agent = {"name": "bench", "model": "practice", "max_tokens": 1000}
    agent["context"] = {"policy": "compact"}
    first = _new("session.updated", {"agent": agent, "hands": {}})
    await it.stub.CreateSession(
        pb.CreateSessionRequest(session_id=session_id, events=[first]), timeout=SECONDS
    )
    resource = f"session/{session_id}"
    request = pb.AcquireLeaseRequest(resource=resource, address="127.0.0.1:1")
    request.term.FromSeconds(60)
    lease = (await brain.AcquireLease(request, timeout=SECONDS)).lease
    head = await _append(brain, session_id, lease.epoch, 1, events - (_AFTER if cut else 0))
    if cut:
        read = partial(read_events, brain, session_id)
        data = {
            "policy": compact.NAME,
            "kind": "summary",
            "through": head,
            "text": "What was said so far: " + "much. " * 200,
            "tokens_before": 150_000,
            "state": await Waking(brain, session_id).state(head, read),
        }
        group = types_pb2.AppendGroup(sequence=1, session_id=session_id, epoch=lease.epoch)
        group.events.append(_new(COMPACTED, data))
        await _send(brain, [group])
        head = await _append(brain, session_id, lease.epoch, head + 1, events)
    release = pb.ReleaseLeaseRequest(resource=resource, epoch=lease.epoch, processed=head)
    await brain.ReleaseLease(release, timeout=SECONDS)
    return session_id


async def _append(
    brain: "SessionAsyncStub", session_id: str, epoch: int, head: int, to: int
) -> int:
    """Whole turns from `head` on up to about `to`; the new head."""
    groups: list[types_pb2.AppendGroup] = []
    while head + _TURN <= to:
        group = types_pb2.AppendGroup(sequence=len(groups) + 1, session_id=session_id, epoch=epoch)
        while len(group.events) < _GROUP and head + _TURN <= to:
            group.events.extend(_turn(head))
            head += _TURN
        groups.append(group)
    await _send(brain, groups)
    return head


async def _send(brain: "SessionAsyncStub", groups: list[types_pb2.AppendGroup]) -> None:
    call = brain.Append(timeout=SECONDS)
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def write() -> None:
        for group in groups:
            await room.acquire()
            await call.write(pb.AppendRequest(groups=[group]))
        await call.done_writing()

    async with asyncio.TaskGroup() as both:
        both.create_task(write())
        async for answer in call:
            for ack in answer.acks:
                if ack.HasField("status"):
                    raise RuntimeError(f"not appended: {ack.status.message}")
                room.release()


def _turn(head: int) -> Iterator[types_pb2.NewEvent]:
    """A message, a call and its result, an answer: the events after `head`."""
    asked, again, call = new_id("sevt"), new_id("sevt"), new_id("sevt")
    yield _new("user.message", {"content": _text(f"please do the thing after {head} " * 3)})
    yield _new("session.status_running", {})
    yield _new("span.model_request_start", _start(head + 2), asked)
    used = {"name": "bash", "hand": "shell", "input": {"command": f"make thing-{head}"}}
    used["evaluated_permission"] = "allow"
    yield _new("agent.tool_use", used | {"model_request_start_id": asked}, call)
    yield _new("span.model_request_end", _end(asked, "tool_use"))
    yield _new("agent.tool_result", {"tool_use_id": call, "content": _text("made it\n" * 20)})
    yield _new("span.model_request_start", _start(head + 6), again)
    told = {"model_request_start_id": again, "content": _text("The thing is made. " * 5)}
    yield _new("agent.message", told)
    yield _new("span.model_request_end", _end(again, "end_turn"))
    idle = {"stop_reason": {"type": "end_turn"}, "through": head + 9}
    yield _new("session.status_idle", idle)


def _start(through: int) -> Json:
    sent = {"request_sha256": "0" * 64, "reserved": {"model_requests": 1}}
    said = {"model": "practice", "harness": "tool_loop/1", "policy": compact.NAME}
    return {**said, **sent, "through": through}


def _end(request_id: str, stop: str) -> Json:
    usage = {"input_tokens": 1000, "output_tokens": 50}
    ended = {"model_request_start_id": request_id, "is_error": False}
    return {**ended, "model_usage": usage, "stop_reason": stop}


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


def _new(kind: str, data: Json, event_id: str = "") -> types_pb2.NewEvent:
    return types_pb2.NewEvent(
        id=event_id or new_id("sevt"), type=kind, data=json.dumps(data).encode()
    )
