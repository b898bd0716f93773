"""The fleet: the daemons linked here, and the way to those linked elsewhere.

This brain's own links are known better than the directory, and come first.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime

from brain import drains
from brain.clones import Machine
from brain.daemon_link import DaemonLink
from brain.directory import Directory, attributes, info
from brain.gate import Gate
from brain.hands_at import HandConnection, Linked, Peers, Relayed, one
from brain.leases import Lease, LeaseKeeper
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import hand_pb2, types_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

HEARTBEAT = 5.0
"""Seconds between heartbeats on a link; silence of three ends it."""
_LEAVE = 2.0
"""Seconds a daemon has to leave once its turn has come."""

ORPHAN_MARGIN = 30.0
"""Seconds past its orphan deadline before a hand out of reach is given up."""

CAPABILITIES = frozenset({"claim", "replay", "attach"})
"""Link capabilities this brain has."""


class Fleet:
    """The daemons of every workspace, as this brain knows them."""

    def __init__(
        self,
        directory: Directory,
        keeper: LeaseKeeper,
        peers: Peers,
        me: Identity,
        *,
        heartbeat: float = HEARTBEAT,
        link_age: float = 0.0,
        orphan_margin: float = ORPHAN_MARGIN,
        expires: Callable[[], datetime] | None = None,
    ) -> None:
        """`heartbeat`, `link_age` and `orphan_margin` are in seconds; `link_age` zero lets links
        last.

        `expires` says when the certificate shown to those who connect now runs out.
        """
        self.directory = directory
        directory.on_taken = self._taken
        self.gate = Gate(directory.sessions, me.uri)
        self.orphan_margin = orphan_margin
        self._heartbeat = heartbeat
        self._link_age = link_age
        self._expires = expires or (lambda: me.not_after)
        self.came: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        """Daemons that linked with something to reconcile, and their workspaces."""
        self._leaving = False
        self._emptied = asyncio.Event()
        self._keeper = keeper
        self._peers = peers
        self._me = me
        self._links: dict[str, DaemonLink] = {}
        self._leases: dict[str, Lease] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._planned: dict[DaemonLink, list[asyncio.TimerHandle]] = {}
        self._described: dict[tuple[str, int], hand_pb2.DescribeResponse] = {}

    # Links that come and go.

    async def admit(self, link: DaemonLink, hello: pb.Hello, protocol: int) -> pb.Welcome:
        """Take a daemon's lease and register its link; an older link is superseded."""
        name = link.daemon_id
        if hello.daemon_id != name:
            raise refuse(
                Reason.NAME_MISMATCH,
                f"hello says {hello.daemon_id!r}, the certificate {name!r}",
            )
        if self._leaving:
            raise refuse(Reason.UNAVAILABLE, "this brain stops", action="dial another brain")
        workspace = link.identity.workspace
        await self.gate.check(
            name,
            workspace,
            new=_machine(hello, hello.last_epoch),
            first=self._first(name),
            answers=lambda: self._answer(name, workspace),
        )
        lease, _ = await self._keeper.acquire(
            f"daemon/{name}",
            takeover=True,
            workspace=workspace,
            attributes=attributes(link),
        )
        if lease.lost.is_set():
            raise refuse(Reason.LINK_SUPERSEDED, f"a newer link of {name} came at the same time")
        if older := self._links.get(name):
            older.end(refuse(Reason.LINK_SUPERSEDED, f"a newer link of {name} came"))
        self._links[name], self._leases[name] = link, lease
        watching = asyncio.create_task(self._end_with(link, lease))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        self._plan(link)
        log.info("daemon linked", extra={"daemon": name, "epoch": lease.epoch})
        await self.directory.notify()
        if hello.unsettled:
            self.came.put_nowait((name, link.identity.workspace))
        welcome = pb.Welcome(
            protocol=protocol,
            epoch=lease.epoch,
            capabilities=sorted(CAPABILITIES & set(hello.capabilities)),
            brains=self.directory.brains,
            brain=self._me.name,
        )
        welcome.heartbeat_interval.FromMilliseconds(int(self._heartbeat * 1000))
        welcome.silence_limit.FromMilliseconds(int(3 * self._heartbeat * 1000))
        welcome.server_time.GetCurrentTime()
        return welcome

    def _first(self, name: str) -> Machine | None:
        """The machine that has the daemon's link now, here or elsewhere."""
        if link := self._links.get(name):
            return _machine(link.hello, self._leases[name].epoch)
        row = self.directory.daemons.get(name)
        if row is None or not row.live or row.lease.holder == self._me.uri:
            return None
        said = row.lease.attributes
        return Machine(
            said.get("instance", ""), said.get("boot", ""), said.get("journal", ""), row.lease.epoch
        )

    async def _answer(self, name: str, workspace: str) -> None:
        """Have the daemon that is linked now answer; raises when it does not."""
        connection = await self.connection(name, workspace)
        await one(connection.call("describe", hand_pb2.DescribeRequest()))

    def _taken(self, lease: types_pb2.LeaseInfo) -> None:
        """Another brain has a daemon's lease: the link here is over, before renewing says so."""
        ours = self._leases.get(lease.resource.removeprefix("daemon/"))
        if ours is not None and lease.epoch > ours.epoch and lease.holder != self._me.uri:
            self._keeper.drop(ours)

    async def cut(self, info: pb.DaemonInfo, why: CarpalError) -> None:
        """End a daemon's link, wherever it is; its document says that it may not come back."""
        if link := self._links.get(info.daemon_id):
            link.end(why)
        elif info.state != "gone":
            # Its brain sees the lease go, also one that cannot be reached from here.
            known = self.directory.daemons[info.daemon_id].lease
            lease, _ = await self._keeper.acquire(
                known.resource,
                takeover=True,
                workspace=known.workspace,
                attributes=dict(known.attributes),
            )
            await self._keeper.release(lease)

    def _plan(self, link: DaemonLink) -> None:
        """Drain it before it is cut, and end it when our certificate does."""
        planned = drains.plan(
            datetime.now(UTC),
            theirs=link.identity.not_after,
            ours=self._expires(),
            age=self._link_age,
            chance=random.random(),  # noqa: S311 - jitter
        )
        later = asyncio.get_running_loop().call_later
        expired = refuse(Reason.CERTIFICATE_EXPIRED, "the brain's certificate expired")
        self._planned[link] = [later(planned.end, link.end, expired)]
        if planned.drain is not None:
            self._planned[link].append(later(planned.drain, link.drain, "the link gets old"))

    async def _end_with(self, link: DaemonLink, lease: Lease) -> None:
        """A link lasts no longer than its lease: another brain has the daemon, or none may."""
        await lease.lost.wait()
        link.end(refuse(Reason.LINK_SUPERSEDED, f"the lease of {link.daemon_id} is another's now"))

    async def left(self, link: DaemonLink) -> None:
        """A link ended: give its lease up, unless a newer link took its place."""
        for timer in self._planned.pop(link, ()):
            timer.cancel()
        name = link.daemon_id
        if self._links.get(name) is not link:
            return
        del self._links[name]
        if not self._links:
            self._emptied.set()
        lease = self._leases.pop(name)  # before any wait: a newer link may come meanwhile
        log.info("daemon gone", extra={"daemon": name})
        await self.directory.notify()
        await self._keeper.release(lease)

    def link_of(self, daemon: Identity) -> DaemonLink | None:
        """The link here of the very daemon that asks, if it has one."""
        link = self._links.get(daemon.name)
        same = link is not None and (link.identity.uri, link.identity.workspace) == (
            daemon.uri,
            daemon.workspace,
        )
        return link if same else None

    def end_links(self, error: CarpalError | None) -> None:
        """This brain lost its lease, or stops: it may serve no daemon."""
        for link in list(self._links.values()):
            link.end(error)

    async def leave(self, reason: str) -> None:
        """Take no link any more, ask every daemon to dial another brain, and wait until they did.

        Bounded: the links that are left then are ended.
        """
        self._leaving = True
        self._emptied.clear()
        over = drains.spread(len(self._links))
        for link in self._links.values():
            link.drain(reason, random.uniform(0.0, over))  # noqa: S311 - jitter
        try:
            async with asyncio.timeout(over + _LEAVE):
                if self._links:
                    await self._emptied.wait()
        except TimeoutError:
            log.warning("daemons did not leave", extra={"daemons": sorted(self._links)[:10]})
        self.end_links(None)

    def tell_brains(self, addresses: list[str]) -> None:
        """Tell every daemon which brains there are."""
        for link in self._links.values():
            link.tell_brains(addresses)

    # The way to a daemon.

    def has(self, daemon_id: str) -> bool:
        """Whether the daemon is linked at this very brain."""
        return daemon_id in self._links

    def linked(self, daemon_id: str, principal: str) -> Linked:
        """A daemon linked at this very brain, asked on behalf of `principal`."""
        link = self._links.get(daemon_id)
        if link is None or not link.open:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon_id} is not linked here")
        return Linked(link, principal)

    async def connection(self, daemon_id: str, workspace: str) -> HandConnection:
        """The way to a daemon's hands; DAEMON_NOT_LINKED when there is none now.

        Also for a daemon of another workspace: nothing crosses, whatever a log says.
        """
        if link := self._links.get(daemon_id):
            if link.identity.workspace == workspace:
                return self.linked(daemon_id, self._me.uri)
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon_id} is not linked anywhere")
        row = self.directory.daemons.get(daemon_id)
        known = row is not None and row.live and row.lease.workspace == workspace
        if row is None or not known or row.lease.holder == self._me.uri:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon_id} is not linked anywhere")
        stub = await self._peers.hands(row.lease.address)
        return Relayed(stub, daemon_id, f"the brain at {row.lease.address}")

    async def describe(self, daemon: pb.DaemonInfo, hand_type: str) -> hand_pb2.HandTypeInfo:
        """What a daemon says of a type: from its hello, or asked for once an epoch."""
        name = daemon.daemon_id
        if link := self._links.get(name):
            types = link.hello.types
        else:
            types = (await self._describe(name, daemon.workspace)).types
        for told in types:
            if told.type == hand_type:
                return told
        raise refuse(Reason.HAND_TYPE_NOT_FOUND, f"daemon {name} has no type {hand_type!r}")

    def daemons(self, workspace: str) -> list[pb.DaemonInfo]:
        """A workspace's daemons, linked here or elsewhere, or gone."""
        known = [
            row.info
            for name, row in self.directory.daemons.items()
            if row.lease.workspace == workspace and not self.has(name)
        ]
        known += [
            self._linked_info(link)
            for link in self._links.values()
            if link.identity.workspace == workspace
        ]
        return sorted(known, key=lambda d: d.daemon_id)

    def daemon(self, daemon_id: str, workspace: str) -> pb.DaemonInfo:
        """One of a workspace's daemons; DAEMON_NOT_FOUND when there is none of that name."""
        for known in self.daemons(workspace):
            if known.daemon_id == daemon_id:
                return known
        raise refuse(Reason.DAEMON_NOT_FOUND, f"no daemon {daemon_id!r}")

    async def drain_hands(
        self, info: pb.DaemonInfo, request: pb.DrainDaemonRequest
    ) -> pb.DaemonInfo:
        """Tell a daemon linked here to take no new hands, or to take them again."""
        link = self._links.get(info.daemon_id)
        if link is None:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {info.daemon_id} is not linked here")
        order = pb.DrainHandsRequest(reason=request.reason, lift=request.lift)
        asking = self.linked(info.daemon_id, self._me.uri).call("drain_hands", order)
        answer: pb.DrainHandsResponse = await one(asking)
        link.capacity = answer.capacity
        return self._linked_info(link)

    async def _describe(self, daemon_id: str, workspace: str) -> hand_pb2.DescribeResponse:
        row = self.directory.daemons.get(daemon_id)
        key = (daemon_id, row.lease.epoch if row else 0)
        if key not in self._described:
            connection = await self.connection(daemon_id, workspace)
            request = hand_pb2.DescribeRequest()
            told: hand_pb2.DescribeResponse = await one(connection.call("describe", request))
            stale = [known for known in self._described if known[0] == daemon_id]
            for known in stale:
                del self._described[known]
            self._described[key] = told
        return self._described[key]

    def _linked_info(self, link: DaemonLink) -> pb.DaemonInfo:
        lease = types_pb2.LeaseInfo(
            holder=self._me.uri,
            address=self._keeper.address,
            workspace=link.identity.workspace,
            attributes=attributes(link),
        )
        draining = link.draining or link.capacity.draining
        told = info(link.daemon_id, lease, "draining" if draining else "connected")
        told.capacity.CopyFrom(link.capacity)
        return told


def _machine(hello: pb.Hello, epoch: int) -> Machine:
    return Machine(hello.instance_id, hello.boot_id, hello.journal_id, epoch)
