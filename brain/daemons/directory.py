"""The directory: what the lease table says of daemons and brains.

A row under `daemon/` says which brain holds a daemon's link; its attributes
say what the daemon offers. A row under `brain/` says where a brain is dialled.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from brain.daemons import past
from brain.daemons.daemon_link import DaemonLink
from brain.session.leases import follow_leases, is_live
from carpal import releases
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import session_pb2_grpc, types_pb2

_DAY = 10
"""Characters of 2026-11-30."""


@dataclass(frozen=True)
class Row:
    """A daemon as the lease table has it."""

    lease: types_pb2.LeaseInfo
    live: bool
    """A live lease's renewals are no news; only its end is."""
    learned: float
    """When this was learned, on the monotonic clock."""
    ended: int = 0
    """When it was seen to end, in seconds since the epoch; 0 while it lives, or if nobody saw."""

    @property
    def info(self) -> pb.DaemonInfo:
        """What an operator sees of it."""
        name = self.lease.resource.removeprefix("daemon/")
        told = info(name, self.lease, "connected" if self.live else "gone")
        if not self.live:
            over = self.over
            told.ClearField("linked_since")
            if over.ended:
                told.last_seen.FromSeconds(over.ended)
            told.links.insert(0, past.told([over])[0])
            del told.links[past.LINKS_MAX :]
        return told

    @property
    def over(self) -> past.Past:
        """Its link, once that is over."""
        return past.ended(self.lease.attributes, self.ended, past.UNSEEN)


class Directory:
    """Follows the lease table; what it says may be a moment old."""

    def __init__(self, stub: "session_pb2_grpc.SessionAsyncStub") -> None:
        self.sessions = stub
        self.on_taken: Callable[[types_pb2.LeaseInfo], None] = lambda _: None
        """Told of each daemon's lease that lives: another brain may have it now."""
        self._changed = asyncio.Condition()
        self.daemons: dict[str, Row] = {}
        self.loaded = asyncio.Event()
        """The first snapshot of the daemons is here."""
        self.since = 0.0
        """When it came, on the monotonic clock. It lacks the daemons that were gone by then."""
        self.brains: list[str] = []
        """Addresses of every brain, for daemons to dial."""

    async def follow_daemons(self) -> None:
        """Keep `daemons`; runs until cancelled."""
        async for answer in follow_leases(self.sessions, "daemon/"):
            known = dict(self.daemons)
            if answer.snapshot:
                self.daemons.clear()
            for lease in answer.leases:
                name, live = lease.resource.removeprefix("daemon/"), is_live(lease)
                before = known.get(name)
                saw = not live and before is not None and before.lease.epoch == lease.epoch
                ended = (int(time.time()) if before.live else before.ended) if saw and before else 0
                row = self.daemons[name] = Row(lease, live, time.monotonic(), ended)
                if row.live:
                    self.on_taken(lease)
            if not self.loaded.is_set():
                self.since = time.monotonic()
                self.loaded.set()
            await self.notify()

    async def follow_brains(self, changed: Callable[[list[str]], None]) -> None:
        """Keep `brains`, and say when they changed; runs until cancelled."""
        addresses: dict[str, str] = {}
        async for answer in follow_leases(self.sessions, "brain/"):
            if answer.snapshot:
                addresses.clear()
            for lease in answer.leases:
                addresses.pop(lease.resource, None)
                if is_live(lease):
                    addresses[lease.resource] = lease.address
            known = sorted(set(addresses.values()))
            if known != self.brains:
                self.brains = known
                changed(known)

    async def wait_change(self, seconds: float) -> None:
        """Until a daemon comes or goes, or the time is up."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait()
        except TimeoutError:
            return

    async def notify(self) -> None:
        """A daemon came or went."""
        async with self._changed:
            self._changed.notify_all()


def attributes(link: DaemonLink) -> dict[str, str]:
    """What a daemon's lease says of it, for brains that do not hold its link."""
    hello = link.hello
    return {
        "types": ",".join(sorted(t.type for t in hello.types)),
        "pool": link.identity.pool,
        "labels": json.dumps(dict(hello.labels), sort_keys=True),
        "version": hello.version,
        "instance": hello.instance_id,
        "boot": hello.boot_id,
        "journal": hello.journal_id,
        "expires": str(int(link.identity.not_after.timestamp())),
        "begins": str(int(link.identity.not_before.timestamp())),
        "serial": f"{link.identity.serial:x}",
        "identity": link.identity.uri,
        "since": str(int(time.time())),
        "released": hello.released[:_DAY],
        "protocols": f"{hello.protocol_min}-{hello.protocol_max}",
        "hands": str(hello.capacity.hands),
        "hands_max": str(hello.capacity.hands_max),
    }


def info(name: str, lease: types_pb2.LeaseInfo, state: str) -> pb.DaemonInfo:
    """A daemon's lease, read back."""
    said = lease.attributes
    told = pb.DaemonInfo(
        daemon_id=name,
        workspace=lease.workspace,
        pool=said.get("pool", ""),
        state=state,
        brain=lease.holder.rpartition("/")[2],
        address=lease.address,
        types=[t for t in said.get("types", "").split(",") if t],
        labels=json.loads(said.get("labels") or "{}"),
        capacity=pb.Capacity(
            hands=int(said.get("hands") or 0), hands_max=int(said.get("hands_max") or 0)
        ),
        version=said.get("version", ""),
    )
    told.certificate_expires.FromSeconds(int(said.get("expires") or 0))
    told.identity, told.certificate_serial = said.get("identity", ""), said.get("serial", "")
    told.boot_id, told.instance_id = said.get("boot", ""), said.get("instance", "")
    if begins := said.get("begins"):
        told.certificate_begins.FromSeconds(int(begins))
    if since := said.get("since"):
        told.linked_since.FromSeconds(int(since))
    if released := releases.read(said.get("released", "")):
        until = releases.end_of(releases.supported_until(released))
        told.supported_until.FromDatetime(until)
    low, _, high = said.get("protocols", "").partition("-")
    if high:
        told.protocol_min, told.protocol_max = int(low), int(high)
    told.links.extend(past.told(past.history(said)))
    return told
