"""The fleet: the daemons linked here and elsewhere, and the way to each.

This brain's own links are known better than the directory, and come first.
"""

from brain.daemons.daemon_link import DaemonLink
from brain.daemons.directory import Directory, info
from brain.daemons.hands_at import HandConnection, Linked, Peers, Relayed, one
from brain.daemons.links import Links
from carpal.errors import refuse
from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import hand_pb2, types_pb2
from carpal.v1 import orchestrator_pb2 as pb

ORPHAN_MARGIN = 30.0
"""Seconds past its orphan deadline before a hand out of reach is given up."""


class Fleet:
    """The daemons of every workspace, as this brain knows them."""

    def __init__(
        self,
        directory: Directory,
        links: Links,
        peers: Peers,
        me: Identity,
        orphan_margin: float = ORPHAN_MARGIN,
    ) -> None:
        """`orphan_margin` is in seconds."""
        self.directory = directory
        self.links = links
        self.orphan_margin = orphan_margin
        self._peers = peers
        self._me = me
        self._described: dict[tuple[str, int], hand_pb2.DescribeResponse] = {}

    def has(self, daemon_id: str) -> bool:
        """Whether the daemon is linked at this very brain."""
        return self.links.get(daemon_id) is not None

    def linked(self, daemon_id: str, principal: str) -> Linked:
        """A daemon linked at this very brain, asked on behalf of `principal`."""
        link = self.links.get(daemon_id)
        if link is None or not link.open:
            raise refuse(Reason.DAEMON_NOT_LINKED, f"daemon {daemon_id} is not linked here")
        return Linked(link, principal)

    async def connection(self, daemon_id: str, workspace: str) -> HandConnection:
        """The way to a daemon's hands; DAEMON_NOT_LINKED when there is none now.

        Also for a daemon of another workspace: nothing crosses, whatever a log says.
        """
        if link := self.links.get(daemon_id):
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
        if link := self.links.get(name):
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
            self._linked_info(link) for link in self.links if link.identity.workspace == workspace
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
        link = self.links.get(info.daemon_id)
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
            address=self.links.address,
            workspace=link.identity.workspace,
            attributes=self.links.said(link),
        )
        draining = link.draining or link.capacity.draining
        told = info(link.daemon_id, lease, "draining" if draining else "connected")
        told.capacity.CopyFrom(link.capacity)
        return told
