"""A session that fails is tried again, later, and after three tries without progress not."""

import json

from carpal.identity import Role, identity_uri
from carpal.v1 import types_pb2
from carpal.verdict import equal, must
from sessiond.conformance.bench import TERM_SHORT, Bench
from sessiond.conformance.group import Group
from sessiond.conformance.streams import Offers

group = Group("runnable")


async def _fail(
    bench: Bench, id: str, why: str = "it broke", failed: tuple[str, str] = ("", "")
) -> types_pb2.SessionInfo:
    """Drive a session without progress."""
    lease = (await bench.lease(id)).lease
    return await bench.release(id, lease.epoch, failure=why, failed=failed)


async def _woken(bench: Bench) -> tuple[str, Offers]:
    workspace = bench.fresh("check")
    made = await bench.session(bench.events(1), wake=True, workspace=workspace)
    offers = bench.runnable(workspace)
    await offers.until(made.session_id)
    return made.session_id, offers


async def _parked(bench: Bench) -> tuple[str, Offers]:
    id, offers = await _woken(bench)
    for _ in range(3):
        await _fail(bench, id)
    return id, offers


@group
async def tried_again(bench: Bench) -> None:
    """A session whose driver failed is offered again, with the try counted."""
    id, offers = await _woken(bench)
    for tries in (1, 2):
        session = await _fail(bench, id)
        equal("parked", session.parked_reason, "")
        equal("attempts", (await offers.until(id, tries=tries)).attempts, tries)


@group
async def parked(bench: Bench) -> None:
    """After three tries without progress a session is parked, with the reason, and in the log."""
    id, _ = await _woken(bench)
    for _ in range(2):
        await _fail(bench, id)
    session = await _fail(bench, id, "the model said no", ("vault", "VAULT_UNAVAILABLE"))
    must("the model said no" in session.parked_reason, f"parked: {session.parked_reason!r}")
    errors = [event for event in await bench.log(id) if event.type == "session.error"]
    equal("session.error events", len(errors), 1)
    said = json.loads(errors[0].data)
    must("the model said no" in json.dumps(said), "it lacks the reason")
    equal("its layer", said["error"].get("layer"), "vault")
    equal("its cause", said["error"].get("cause"), "VAULT_UNAVAILABLE")
    prefix = identity_uri(bench.caller("brain").identity.trust_domain, Role.SESSIOND, "")
    must(errors[0].source.startswith(prefix), f"its source is {errors[0].source}")
    equal("the session's head", session.head.position, len(await bench.log(id)))


@group
async def parked_is_not_offered(bench: Bench) -> None:
    """A parked session is not offered, although its wake is left."""
    id, _ = await _parked(bench)
    workspace = (await bench.info(id)).workspace
    marker = await bench.session(bench.events(1), wake=True, workspace=workspace)
    offers = bench.runnable(workspace)
    await offers.until(marker.session_id)
    must(id not in offers.seen, "it is offered")


@group
async def parked_by_vanishing(bench: Bench) -> None:
    """Three drivers that vanish without progress park a session, as three that fail do."""
    id, offers = await _woken(bench)
    tail = bench.tail({id: 0}, types=["session.error"])
    for tries in (1, 2, 3):
        await bench.lease(id, term=TERM_SHORT)
        if tries < 3:
            equal("attempts", (await offers.until(id, tries=tries)).attempts, tries)
    await tail.until(lambda tail: bool(tail.events[id]))
    must(bool((await bench.info(id)).parked_reason), "it is not parked")


@group
async def unparked_by_a_wake(bench: Bench) -> None:
    """A new wake gives a parked session another chance, with no tries counted."""
    id, offers = await _parked(bench)
    wake = (await bench.emit(id, bench.event(), wake=True)).position
    equal("attempts", (await offers.until(id, wake=wake)).attempts, 0)
    equal("parked_reason", (await bench.info(id)).parked_reason, "")


@group
async def unparked_by_no_event(bench: Bench) -> None:
    """An event without a wake leaves a parked session parked."""
    id, _ = await _parked(bench)
    await bench.emit(id, bench.event())
    must(bool((await bench.info(id)).parked_reason), "it is not parked any more")


@group
async def progress_counts(bench: Bench) -> None:
    """A driver that appended an `agent.*` event and failed made progress: tries begin anew."""
    id, offers = await _woken(bench)
    await _fail(bench, id)
    equal("attempts", (await offers.until(id, tries=1)).attempts, 1)
    for _ in range(3):
        lease = (await bench.lease(id)).lease
        await bench.emit(id, bench.event("agent.message"), epoch=lease.epoch)
        session = await bench.release(id, lease.epoch, failure="it broke")
        equal("parked", session.parked_reason, "")
    # Released without a failure, it need not wait out the backoff of those before.
    lease = (await bench.lease(id)).lease
    await bench.emit(id, bench.event("agent.message"), epoch=lease.epoch)
    await bench.release(id, lease.epoch)
    equal("attempts", (await offers.until(id)).attempts, 0)


@group
async def lost_after_a_question(bench: Bench) -> None:
    """Three drivers whose leases expire after no more than a question to the model park it."""
    id, offers = await _woken(bench)
    tail = bench.tail({id: 0}, types=["session.error"])
    for tries in (1, 2, 3):
        lease = (await bench.lease(id, term=TERM_SHORT)).lease
        await bench.emit(id, bench.event("span.model_request_start"), epoch=lease.epoch)
        if tries < 3:
            equal("attempts", (await offers.until(id, tries=tries)).attempts, tries)
    await tail.until(lambda tail: bool(tail.events[id]))
    must(bool((await bench.info(id)).parked_reason), "it is not parked")


@group
async def notes_are_no_progress(bench: Bench) -> None:
    """A driver that appended only notes, errors and spans before it failed made no progress."""
    id, offers = await _woken(bench)
    for tries, kind in enumerate(("context.note", "session.error", "span.model_request_start"), 1):
        lease = (await bench.lease(id)).lease
        await bench.emit(id, bench.event(kind), epoch=lease.epoch)
        session = await bench.release(id, lease.epoch, failure="it broke")
        if tries < 3:
            equal("attempts", (await offers.until(id, tries=tries)).attempts, tries)
    must("it broke" in session.parked_reason, f"parked: {session.parked_reason!r}")
