"""The links of daemons at this very brain: each daemon's newest, and its lease.

A link lasts no longer than its lease: who takes the lease has the daemon.
"""

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Iterator

from brain.daemons import drains, past
from brain.daemons.daemon_link import DaemonLink
from brain.daemons.directory import Directory, attributes
from brain.daemons.planned import PlannedEnds
from brain.session.leases import Lease, LeaseKeeper
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import types_pb2

log = logging.getLogger(__name__)

_LEAVE = 2.0
"""Seconds a daemon has to leave once its turn has come."""


class Links:
    """Links that come and go."""

    def __init__(
        self, directory: Directory, keeper: LeaseKeeper, me: Identity, planned: PlannedEnds
    ) -> None:
        self._directory = directory
        directory.on_taken = self._taken
        self._keeper = keeper
        self._me = me
        self._planned = planned
        self._links: dict[str, DaemonLink] = {}
        self._leases: dict[str, Lease] = {}
        self._said: dict[str, dict[str, str]] = {}
        """The attributes of those leases."""
        self._over: dict[str, tuple[int, dict[str, str]]] = {}
        """Epoch and attributes of leases that are being given up."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.leaving = False
        """No link is taken any more."""
        self._emptied = asyncio.Event()

    @property
    def address(self) -> str:
        """Where this brain is dialled."""
        return self._keeper.address

    def __iter__(self) -> Iterator[DaemonLink]:
        return iter(list(self._links.values()))

    def get(self, name: str) -> DaemonLink | None:
        """A daemon's link."""
        return self._links.get(name)

    def of(self, daemon: Identity) -> DaemonLink | None:
        """The link here of the very daemon that asks, if it has one."""
        link = self._links.get(daemon.name)
        same = link is not None and (link.identity.uri, link.identity.workspace) == (
            daemon.uri,
            daemon.workspace,
        )
        return link if same else None

    def epoch(self, name: str) -> int:
        """Of the link that the daemon has here."""
        return self._leases[name].epoch

    def check_staying(self) -> None:
        """UNAVAILABLE once this brain leaves: no link is taken any more."""
        if self.leaving:
            raise refuse(Reason.UNAVAILABLE, "this brain stops", action="dial another brain")

    async def take(self, link: DaemonLink) -> Lease:
        """Take the daemon's lease for its new link. An older link is superseded.

        UNAVAILABLE once this brain leaves, also if it began to meanwhile: a link that is not
        welcomed yet heard of no drain.
        """
        self.check_staying()
        name = link.daemon_id
        own = {**attributes(link), "brain": self._me.name}
        said = past.with_history(own, self._before(name))
        lease, _ = await self._keeper.acquire(
            f"daemon/{name}",
            takeover=True,
            workspace=link.identity.workspace,
            attributes=said,
        )
        if lease.lost.is_set():
            raise refuse(Reason.LINK_SUPERSEDED, f"a newer link of {name} came at the same time")
        if older := self._links.get(name):
            older.end(refuse(Reason.LINK_SUPERSEDED, f"a newer link of {name} came"))
        self._links[name], self._leases[name], self._said[name] = link, lease, said
        self._start(self._end_with(link, lease))
        self._planned.plan(link)
        log.info("daemon linked", extra={"daemon": name, "epoch": lease.epoch})
        await self._directory.notify()
        if self.leaving:
            await self.left(link)
            self.check_staying()
        return lease

    async def left(self, link: DaemonLink) -> None:
        """A link ended: give its lease up, unless a newer link took its place.

        Also when who waits for it is cancelled, as an RPC is whose caller is gone.
        """
        self._planned.forget(link)
        name = link.daemon_id
        if self._links.get(name) is not link:
            return
        del self._links[name]
        if not self._links:
            self._emptied.set()
        lease = self._leases.pop(name)  # before any wait: a newer link may come meanwhile
        log.info("daemon gone", extra={"daemon": name})
        end = _end(link.why or past.CUT)
        self._over[name] = (lease.epoch, {**self._said.pop(name), **end})
        await asyncio.shield(self._start(self._give_up(name, lease, end)))

    async def _give_up(self, name: str, lease: Lease, end: dict[str, str]) -> None:
        await self._directory.notify()
        await self._keeper.release(lease, attributes=end)
        # From here on the lease table says it.
        if self._over.get(name, (0, {}))[0] == lease.epoch:
            del self._over[name]

    def said(self, link: DaemonLink) -> dict[str, str]:
        """What the lease of a link here says of the daemon."""
        return self._said.get(link.daemon_id) or attributes(link)

    def _before(self, name: str) -> list[past.Past]:
        """A daemon's links so far, also the one whose place is taken now; the newest first."""
        now, superseded = int(time.time()), str(Reason.LINK_SUPERSEDED)
        if name in self._links:
            said = self._said[name]
            return [past.ended(said, now, superseded), *past.history(said)]
        row = self._directory.daemons.get(name)
        if name in self._over and (row is None or row.lease.epoch <= self._over[name][0]):
            said = self._over[name][1]
            return [past.ended(said, 0, past.UNSEEN), *past.history(said)]
        if row is None:
            return []
        over = row.over
        if row.live:
            over = over._replace(ended=now, why=superseded)
        return [over, *past.history(row.lease.attributes)]

    async def _end_with(self, link: DaemonLink, lease: Lease) -> None:
        """A link lasts no longer than its lease: another brain has the daemon, or none may."""
        await lease.lost.wait()
        link.end(refuse(Reason.LINK_SUPERSEDED, f"the lease of {link.daemon_id} is another's now"))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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
            known = self._directory.daemons[info.daemon_id].lease
            lease, _ = await self._keeper.acquire(
                known.resource,
                takeover=True,
                workspace=known.workspace,
                attributes=dict(known.attributes),
            )
            # Nobody else sees this end: its brain finds only that the lease is another's.
            await self._keeper.release(lease, attributes=_end(why.reason))

    async def leave(self, reason: str) -> None:
        """Take no link any more, ask every daemon to dial another brain, and wait until they did.

        Bounded: the links that are left then are ended.
        """
        self.leaving = True
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
        self.end(None)

    def end(self, error: CarpalError | None) -> None:
        """This brain lost its lease, or stops: it may serve no daemon."""
        for link in list(self._links.values()):
            link.end(error)

    def tell_brains(self, addresses: list[str]) -> None:
        """Tell every daemon which brains there are."""
        for link in self._links.values():
            link.tell_brains(addresses)

    def tell_revocations(self, rows: list[types_pb2.Revocation]) -> None:
        """Tell every daemon which servers are revoked."""
        for link in self._links.values():
            link.tell_revocations(rows)


def _end(why: str) -> dict[str, str]:
    """What a lease says of a link's end, now."""
    return {"ended": str(int(time.time())), "why": str(why)}
