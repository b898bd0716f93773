"""Who gets a lease, and under which epoch."""

import asyncio
from datetime import UTC, datetime

import grpc

from carpal import signed
from carpal.client import from_rpc
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import PEER, equal, must, refused
from sessiond.conformance.bench import TERM_SHORT, Bench
from sessiond.conformance.group import Group
from sessiond.conformance.streams import is_live

group = Group("leases")


@group
async def granted(bench: Bench) -> None:
    """A lease is granted with its holder, address, workspace, time left and the session."""
    made = await bench.session(bench.events(2))
    held = await bench.lease(made.session_id, term=20)
    lease = held.lease
    equal("resource", lease.resource, f"session/{made.session_id}")
    equal("holder", lease.holder, bench.caller("brain").identity.uri)
    equal(
        "address and workspace", (lease.address, lease.workspace), ("127.0.0.1:1", made.workspace)
    )
    must(lease.epoch >= 1, "the epoch is 0")
    left = lease.expires_in.ToTimedelta().total_seconds()
    must(20 - bench.slack < left <= 20, f"{left} s are left of 20")
    equal("the session's head", held.session.head, made.head)
    equal("its lease", held.session.lease.epoch, lease.epoch)
    info = await bench.info(made.session_id)
    equal("as read", (info.lease.holder, info.lease.epoch), (lease.holder, lease.epoch))


@group
async def ticket(bench: Bench) -> None:
    """The ticket says what the lease says, and a session service signed it."""
    made = await bench.session()
    held = await bench.lease(made.session_id, term=20)
    signed.verify(held.ticket, bench.caller("brain").ca, Role.SESSIOND, datetime.now(UTC))
    ticket = types_pb2.LeaseTicket.FromString(held.ticket.payload)
    lease = held.lease
    equal(
        "resource, epoch, holder, workspace",
        (ticket.resource, ticket.epoch, ticket.holder, ticket.workspace),
        (lease.resource, lease.epoch, lease.holder, lease.workspace),
    )
    event = await bench.emit(made.session_id, bench.event())
    left = (ticket.expires.ToNanoseconds() - event.time.ToNanoseconds()) / 1e9
    must(20 - bench.slack < left <= 20, f"the ticket is good for {left} s more, of 20")


@group
async def held(bench: Bench) -> None:
    """A live lease of another is LEASE_HELD, and nothing changes."""
    made = await bench.session()
    first = await bench.lease(made.session_id)
    with refused(Reason.LEASE_HELD):
        await bench.lease(made.session_id, stub=bench.brain2)
    await bench.emit(made.session_id, bench.event("agent.message"), epoch=first.lease.epoch)


@group
async def taken_again(bench: Bench) -> None:
    """The same holder that acquires again gets a higher epoch, which fences its earlier one."""
    made = await bench.session()
    first = await bench.lease(made.session_id)
    second = await bench.lease(made.session_id)
    must(second.lease.epoch > first.lease.epoch, "the epoch is not higher")
    with refused(Reason.STALE_EPOCH):
        await bench.emit(made.session_id, bench.event("a.b"), epoch=first.lease.epoch)


@group
async def epochs_rise(bench: Bench) -> None:
    """Epochs rise with each holder, through release and expiry, and never fall."""
    made = await bench.session()
    epochs = []
    for turn in range(6):
        stub = (bench.brain, bench.brain2)[turn % 2]
        expires = turn == 3
        term = TERM_SHORT if expires else None
        lease = (await bench.lease(made.session_id, stub=stub, term=term)).lease
        epochs.append(lease.epoch)
        if expires:
            await bench.expired(made.session_id)
        else:
            await bench.release(made.session_id, lease.epoch, stub=stub)
    equal("epochs", epochs, sorted(set(epochs)))


@group
async def one_winner(bench: Bench) -> None:
    """Of two brains that want a session at once, one gets it."""
    made = await asyncio.gather(*(bench.session() for _ in range(10)))
    for session in made:
        answers = await asyncio.gather(
            bench.lease(session.session_id, stub=bench.brain),
            bench.lease(session.session_id, stub=bench.brain2),
            return_exceptions=True,
        )
        losers = [answer for answer in answers if isinstance(answer, BaseException)]
        equal("who was refused", len(losers), 1)
        with refused(Reason.LEASE_HELD):
            raise losers[0]


@group
async def taken_after_expiry(bench: Bench) -> None:
    """An expired lease has no holder, and another brain takes it."""
    made = await bench.session()
    first = await bench.lease(made.session_id, term=TERM_SHORT)
    await bench.expired(made.session_id)
    info = await bench.info(made.session_id)
    equal("holder", info.lease.holder, "")
    must(not is_live(info.lease), "there is time left")
    second = await bench.lease(made.session_id, stub=bench.brain2)
    must(second.lease.epoch > first.lease.epoch, "the epoch is not higher")


@group
async def not_before_expiry(bench: Bench) -> None:
    """A lease is its holder's for its whole term."""
    made = await bench.session()
    before = bench.now()
    await bench.lease(made.session_id, term=1.0)
    while not await _gets(bench, made.session_id):
        must(bench.now() - before < 1.0 + bench.slack, "it does not expire")
        await asyncio.sleep(0.02)  # tried again: the service tells nobody beforehand
    must(bench.now() - before >= 1.0, f"it was taken after {bench.now() - before:.2f} s of 1 s")


@group
async def takeover_of_a_session(bench: Bench) -> None:
    """A session is never taken over, by its own holder neither."""
    made = await bench.session()
    await bench.lease(made.session_id)
    for stub in (bench.brain, bench.brain2):
        with refused(Reason.TAKEOVER_NOT_ALLOWED):
            await bench.acquire(f"session/{made.session_id}", stub=stub, takeover=True)


@group
async def name_of_another(bench: Bench) -> None:
    """A brain's name is that brain's alone, with takeover or without."""
    name = bench.caller("brain-2").identity.name
    for takeover in (True, False):
        with refused(Reason.TAKEOVER_NOT_ALLOWED):
            await bench.acquire(f"brain/{name}", takeover=takeover)


@group.alone
async def own_name(bench: Bench) -> None:
    """A brain acquires its own name, and takes it over from itself with a higher epoch."""
    resource = f"brain/{bench.caller('brain').identity.name}"
    first = (await bench.acquire(resource, takeover=True)).lease
    second = (await bench.acquire(resource, takeover=True)).lease
    must(second.epoch > first.epoch, "the epoch is not higher")
    equal("workspace", second.workspace, "")
    stale = pb.RenewLeaseRequest(leases=[types_pb2.LeaseRef(resource=resource, epoch=first.epoch)])
    must((await bench.brain.RenewLease(stale)).leases[0].HasField("status"), "the first is renewed")
    release = pb.ReleaseLeaseRequest(resource=resource, epoch=second.epoch)
    answer = await bench.brain.ReleaseLease(release)
    must(not answer.HasField("session"), "the answer has a session")


@group
async def daemon_moves(bench: Bench) -> None:
    """A daemon's lease moves to the brain that takes it over, and the one before is fenced."""
    resource, workspace = f"daemon/{bench.fresh('d')}", bench.fresh("check")
    first = (await bench.acquire(resource, workspace=workspace)).lease
    equal("workspace", first.workspace, workspace)
    with refused(Reason.LEASE_HELD):
        await bench.acquire(resource, workspace=workspace, stub=bench.brain2)
    second = await bench.acquire(resource, workspace=workspace, stub=bench.brain2, takeover=True)
    must(second.lease.epoch > first.epoch, "the epoch is not higher")
    request = pb.RenewLeaseRequest(
        leases=[types_pb2.LeaseRef(resource=resource, epoch=first.epoch)]
    )
    must((await bench.brain.RenewLease(request)).leases[0].HasField("status"), "it is renewed")


@group
async def attributes_kept(bench: Bench) -> None:
    """A lease's attributes are kept and shown."""
    resource, workspace = f"daemon/{bench.fresh('d')}", bench.fresh("check")
    attributes = {"types": "process,browser", "pool": "gpu"}
    request = pb.AcquireLeaseRequest(
        resource=resource, workspace=workspace, attributes=attributes, address="a:1"
    )
    lease = (await bench.brain.AcquireLease(request)).lease
    equal("attributes", dict(lease.attributes), attributes)
    watched = bench.leases(resource)
    row = await watched.until(resource, is_live)
    equal("as watched", dict(row.attributes), attributes)
    release = pb.ReleaseLeaseRequest(
        resource=resource, epoch=lease.epoch, attributes={"pool": "cpu", "ended": "12"}
    )
    await bench.brain.ReleaseLease(release)
    row = await watched.until(resource, lambda row: not is_live(row))
    equal("once released", dict(row.attributes), {**attributes, "pool": "cpu", "ended": "12"})


@group
async def resource_malformed(bench: Bench) -> None:
    """A resource is session/<id>, brain/<name> or daemon/<name>."""
    for bad in ("", "session", "session/", "hand/x", "brain/", "daemon/A B", "session/a/b"):
        with refused(Reason.INVALID_FIELD):
            await bench.acquire(bad, workspace="check")


async def _gets(bench: Bench, session_id: str) -> bool:
    """Whether the second brain gets the lease; LEASE_HELD is the only reason why not."""
    try:
        await bench.lease(session_id, stub=bench.brain2)
    except grpc.RpcError as error:
        equal("why not", from_rpc(error, PEER).reason, Reason.LEASE_HELD)
        return False
    return True
