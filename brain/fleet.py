"""The fleet: which daemons there are, where their links are, which one fits.

The lease table under `daemon/` is the directory: its rows say which brain
holds a daemon's link, and its attributes what the daemon offers. This brain's
own links are known better, and first.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from brain.daemon_link import DaemonLink
from brain.hands_at import HandConnection, Linked, Peers, Relayed, one
from brain.leases import Lease, LeaseKeeper, follow_leases, is_live
from carpal.backoff import Backoff
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import hand_pb2, session_pb2_grpc, types_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

HEARTBEAT = 5.0
"""Seconds between heartbeats on a link; silence of three ends it."""

RETURN_LIMIT = 30.0
"""Seconds after which a daemon that went away is no longer waited for."""

T = TypeVar("T")
Spec = dict[str, Any]
"""A hand as a session names it: type, config, placement."""

CAPABILITIES = frozenset({"claim", "replay"})
"""Link capabilities this brain has."""


@dataclass(frozen=True)
class _Row:
    """A daemon in the directory."""

    lease: types_pb2.LeaseInfo
    live: bool
    """A live lease's renewals are no news; only its end is."""
    learned: float
    """When this was learned, on the monotonic clock."""


class Fleet:
    """The daemons of every workspace, as this brain knows them."""

    def __init__(
        self,
        stub: "session_pb2_grpc.SessionAsyncStub",
        keeper: LeaseKeeper,
        peers: Peers,
        me: Identity,
    ) -> None:
        self._stub = stub
        self._keeper = keeper
        self._peers = peers
        self._me = me
        self._links: dict[str, DaemonLink] = {}
        self._leases: dict[str, Lease] = {}
        self._directory: dict[str, _Row] = {}
        self._described: dict[tuple[str, int], hand_pb2.DescribeResponse] = {}
        self._changed = asyncio.Condition()
        self.brains: list[str] = []
        """Addresses of every brain, for daemons to dial."""

    # Links that come and go.

    async def admit(self, link: DaemonLink, hello: pb.Hello, protocol: int) -> pb.Welcome:
        """Take a daemon's lease and register its link; an older link is superseded."""
        name = link.daemon_id
        if hello.daemon_id != name:
            raise refuse(
                Reason.NAME_MISMATCH,
                f"hello says {hello.daemon_id!r}, the certificate {name!r}",
            )
        lease, _ = await self._keeper.acquire(
            f"daemon/{name}",
            takeover=True,
            workspace=link.identity.workspace,
            attributes=_attributes(link),
        )
        if older := self._links.get(name):
            older.end(refuse(Reason.LINK_SUPERSEDED, f"a newer link of {name} came"))
        self._links[name], self._leases[name] = link, lease
        log.info("daemon linked", extra={"daemon": name, "epoch": lease.epoch})
        await self._notify()
        welcome = pb.Welcome(
            protocol=protocol,
            epoch=lease.epoch,
            capabilities=sorted(CAPABILITIES & set(hello.capabilities)),
            brains=self.brains,
            brain=self._me.name,
        )
        welcome.heartbeat_interval.FromMilliseconds(int(HEARTBEAT * 1000))
        welcome.silence_limit.FromMilliseconds(int(3 * HEARTBEAT * 1000))
        welcome.server_time.GetCurrentTime()
        return welcome

    async def left(self, link: DaemonLink) -> None:
        """A link ended: give its lease up, unless a newer link took its place."""
        name = link.daemon_id
        if self._links.get(name) is not link:
            return
        del self._links[name]
        log.info("daemon gone", extra={"daemon": name})
        await self._notify()
        await self._keeper.release(self._leases.pop(name))

    def end_links(self, error: CarpalError | None) -> None:
        """This brain lost its lease, or stops: it may serve no daemon."""
        for link in list(self._links.values()):
            link.end(error)

    def drain(self, reason: str) -> None:
        """Tell every daemon to look for another brain."""
        for link in self._links.values():
            link.drain(reason)

    # Finding a daemon.

    async def connection(self, daemon_id: str) -> HandConnection:
        """The way to a daemon's hands; DAEMON_NOT_LINKED when there is none now."""
        if daemon_id in self._links:
            return self.linked(daemon_id, self._me.uri)
        row = self._directory.get(daemon_id)
        if row is None or not row.live or row.lease.holder == self._me.uri:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon_id} is not linked anywhere")
        stub = await self._peers.hands(row.lease.address)
        return Relayed(stub, daemon_id, f"the brain at {row.lease.address}")

    def linked(self, daemon_id: str, principal: str) -> Linked:
        """A daemon linked at this very brain, asked on behalf of `principal`."""
        link = self._links.get(daemon_id)
        if link is None or not link.open:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon_id} is not linked here")
        return Linked(link, principal)

    def place(self, spec: Spec, workspace: str) -> str:
        """A daemon with room for a hand; AT_CAPACITY or DAEMON_NOT_FOUND."""
        fits = self._fitting(spec, workspace)
        # The directory does not say how full the others are now; they refuse when they are.
        free = [
            d
            for d in fits
            if d.daemon_id not in self._links or d.capacity.hands < d.capacity.hands_max
        ]
        if not free:
            raise refuse(Reason.AT_CAPACITY, f"every daemon that offers {spec['type']!r} is full")
        here = [d for d in free if d.daemon_id in self._links]
        # This brain's own links save a hop.
        return random.choice(here or free).daemon_id  # noqa: S311 - spreads load, guards nothing

    async def find(self, spec: Spec, workspace: str, patience: float) -> str:
        """As `place`, but waits up to `patience` seconds for room, or for one on its way back."""
        return await self._wait(lambda: self._placed(spec, workspace), spec, workspace, patience)

    async def offer(self, spec: Spec, workspace: str, patience: float) -> hand_pb2.HandTypeInfo:
        """What some daemon that fits says of a hand's type, full or not."""

        async def ask() -> hand_pb2.HandTypeInfo:
            daemon = self._fitting(spec, workspace)[0].daemon_id
            return await self.describe(daemon, spec["type"])

        return await self._wait(ask, spec, workspace, patience)

    async def describe(self, daemon_id: str, hand_type: str) -> hand_pb2.HandTypeInfo:
        """What a daemon says of a type: from its hello, or asked for once an epoch."""
        if link := self._links.get(daemon_id):
            types = link.hello.types
        else:
            row = self._directory.get(daemon_id)
            key = (daemon_id, row.lease.epoch if row else 0)
            if key not in self._described:
                connection = await self.connection(daemon_id)
                self._described[key] = await one(
                    connection.call("describe", hand_pb2.DescribeRequest())
                )
            types = self._described[key].types
        for info in types:
            if info.type == hand_type:
                return info
        raise refuse(Reason.HAND_TYPE_NOT_FOUND, f"daemon {daemon_id} has no type {hand_type!r}")

    def daemons(self, workspace: str) -> list[pb.DaemonInfo]:
        """A workspace's daemons, linked here or elsewhere, or gone."""
        known = [
            _info(name, row.lease, "connected" if row.live else "gone")
            for name, row in self._directory.items()
            if name not in self._links
        ]
        known += [self._linked_info(link) for link in self._links.values()]
        mine = [d for d in known if d.workspace == workspace]
        return sorted(mine, key=lambda d: d.daemon_id)

    async def wait_change(self, seconds: float) -> None:
        """Until a daemon comes or goes, or the time is up."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Follow the directory of daemons; runs until cancelled."""
        async for answer in follow_leases(self._stub, "daemon/"):
            if answer.snapshot:
                self._directory.clear()
            for lease in answer.leases:
                row = _Row(lease, is_live(lease), time.monotonic())
                self._directory[lease.resource.removeprefix("daemon/")] = row
            await self._notify()

    async def follow_brains(self) -> None:
        """Follow the directory of brains; runs until cancelled."""
        addresses: dict[str, str] = {}
        async for answer in follow_leases(self._stub, "brain/"):
            if answer.snapshot:
                addresses.clear()
            for lease in answer.leases:
                addresses.pop(lease.resource, None)
                if is_live(lease):
                    addresses[lease.resource] = lease.address
            known = sorted(set(addresses.values()))
            if known != self.brains:
                self.brains[:] = known
                for link in self._links.values():
                    link.tell_brains(known)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _placed(self, spec: Spec, workspace: str) -> str:
        return self.place(spec, workspace)

    async def _wait(
        self, ask: Callable[[], Awaitable[T]], spec: Spec, workspace: str, patience: float
    ) -> T:
        """Ask until it is answered, while waiting may help and is not over.

        It may for a daemon that was here a moment ago: its brain died, or its
        link was cut, and it is on its way to another.
        """
        deadline = time.monotonic() + patience
        backoff = Backoff(0.1, 1.0)
        while True:
            try:
                return await ask()
            except CarpalError as error:
                hope = (
                    isinstance(error, Unreachable)
                    or error.reason is Reason.AT_CAPACITY
                    or (
                        error.reason is Reason.DAEMON_NOT_FOUND and self._returning(spec, workspace)
                    )
                )
                if not hope or time.monotonic() > deadline:
                    raise
            await self.wait_change(backoff.next())

    def _fitting(self, spec: Spec, workspace: str) -> list[pb.DaemonInfo]:
        """Connected daemons that fit; DAEMON_NOT_FOUND when there is none."""
        there = [d for d in self.daemons(workspace) if d.state == "connected"]
        if fits := [d for d in there if _fits(d, spec)]:
            return fits
        raise refuse(
            Reason.DAEMON_NOT_FOUND,
            f"no connected daemon offers a {spec['type']!r} hand that fits its placement",
            action="connect one: make a token with `carpal fleet token`",
        )

    def _returning(self, spec: Spec, workspace: str) -> bool:
        """Whether a daemon that would fit went away so lately that it may be on its way back."""
        latest = time.monotonic() - RETURN_LIMIT
        gone = {name for name, row in self._directory.items() if row.learned > latest}
        return any(
            d.state == "gone" and d.daemon_id in gone and _fits(d, spec)
            for d in self.daemons(workspace)
        )

    def _linked_info(self, link: DaemonLink) -> pb.DaemonInfo:
        lease = types_pb2.LeaseInfo(
            resource=f"daemon/{link.daemon_id}",
            holder=self._me.uri,
            address=self._keeper.address,
            workspace=link.identity.workspace,
            attributes=_attributes(link),
        )
        draining = link.draining or link.capacity.draining
        info = _info(link.daemon_id, lease, "draining" if draining else "connected")
        info.capacity.CopyFrom(link.capacity)
        return info


def _attributes(link: DaemonLink) -> dict[str, str]:
    hello = link.hello
    return {
        "types": ",".join(sorted(t.type for t in hello.types)),
        "pool": link.identity.pool,
        "labels": json.dumps(dict(hello.labels), sort_keys=True),
        "version": hello.version,
        "expires": str(int(link.identity.not_after.timestamp())),
        "hands": str(hello.capacity.hands),
        "hands_max": str(hello.capacity.hands_max),
    }


def _info(name: str, lease: types_pb2.LeaseInfo, state: str) -> pb.DaemonInfo:
    said = lease.attributes
    info = pb.DaemonInfo(
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
    info.certificate_expires.FromSeconds(int(said.get("expires") or 0))
    return info


def _fits(daemon: pb.DaemonInfo, spec: Spec) -> bool:
    """Whether a daemon offers a hand's type, where its placement wants it."""
    placement = spec.get("placement") or {}
    return (
        spec["type"] in daemon.types
        and placement.get("daemon", daemon.daemon_id) == daemon.daemon_id
        and placement.get("pool", daemon.pool) == daemon.pool
        and all(daemon.labels.get(k) == v for k, v in (placement.get("labels") or {}).items())
    )
