"""Whether a daemon that says hello may link here, and what it is told if so."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from brain.daemons.clones import Machine
from brain.daemons.daemon_link import DaemonLink
from brain.daemons.fleet import Fleet
from brain.daemons.gate import Gate, answering
from brain.daemons.hands_at import one
from brain.daemons.introduction import Introduction
from brain.offers import check_hello, keep_good
from carpal import __version__, releases
from carpal.errors import refuse
from carpal.identity import Identity
from carpal.link_terms import CAPABILITIES, SILENT_BEATS
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

HEARTBEAT = 5.0
"""Seconds between heartbeats on a link."""
AT_ONCE = 32
"""Daemons that are admitted together. Thousands that come at once take turns, so that neither calls
of those that are linked nor the renewal of their leases waits for all of them. A turn is a read and
a lease at sessiond, and waits for no daemon."""


class Admission:
    """From hello to welcome."""

    def __init__(
        self,
        fleet: Fleet,
        me: Identity,
        introduction: Introduction,
        *,
        heartbeat: float = HEARTBEAT,
        unsettled: Callable[[str, str], None] = lambda *_: None,
        linked: Callable[[str, str, pb.Hello], None] = lambda *_: None,
    ) -> None:
        """`heartbeat` is in seconds.

        `unsettled` is told of each daemon that links with something to reconcile, and its
        workspace; `linked` of each that links, and of what it said.
        """
        self.gate = Gate(fleet.directory.sessions, me.uri)
        self._unsettled = unsettled
        self._linked = linked
        self._fleet = fleet
        self._me = me
        self._introduction = introduction
        self._heartbeat = heartbeat
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._coming: dict[str, DaemonLink] = {}
        """Each daemon's newest link that is not admitted yet."""

    async def admit(self, link: DaemonLink, hello: pb.Hello, protocol: int) -> pb.Welcome:
        """Register a daemon's link, or refuse it; an older link is superseded."""
        name, workspace = link.daemon_id, link.identity.workspace
        if hello.daemon_id != name:
            raise refuse(
                Reason.NAME_MISMATCH,
                f"hello says {hello.daemon_id!r}, the certificate {name!r}",
            )
        check_hello(hello)
        if why := keep_good(hello):
            said = {"daemon": name, "types": len(why), "why": str(why[0])}
            log.warning("types are not offered", extra=said)
        new = _machine(hello, hello.last_epoch)
        with self._newest(link):
            asked = self._first(name)
            answers = await answering(asked, new, lambda: self._answer(name, workspace))
            async with self._turns:
                self._fleet.links.check_staying()
                first = self._first(name)
                heard = answers if first == asked else None
                await self.gate.check(name, workspace, new=new, first=first, answers=heard)
                lease = await self._fleet.links.take(link)
        if hello.unsettled:
            self._unsettled(name, workspace)
        self._linked(name, workspace, hello)
        welcome = pb.Welcome(
            protocol=protocol,
            epoch=lease.epoch,
            capabilities=sorted(set(CAPABILITIES).intersection(hello.capabilities)),
            brains=self._fleet.directory.brains,
            brain=self._me.name,
            ticket=lease.ticket,
            version=__version__,
        )
        if released := releases.read(hello.released):
            until = releases.end_of(releases.supported_until(released))
            welcome.supported_until.FromDatetime(until)
            if until < datetime.now(UTC):
                log.warning(
                    "a daemon is beyond its twelve months: upgrade it",
                    extra={"daemon": name, "version": hello.version, "until": f"{until:%F}"},
                )
        welcome.heartbeat_interval.FromMilliseconds(int(self._heartbeat * 1000))
        welcome.silence_limit.FromMilliseconds(int(SILENT_BEATS * self._heartbeat * 1000))
        welcome.server_time.GetCurrentTime()
        self._introduction.to(link.identity, hello, welcome)
        return welcome

    @contextmanager
    def _newest(self, link: DaemonLink) -> Iterator[None]:
        """One link of a daemon is being admitted at a time: an older one ends."""
        name = link.daemon_id
        if older := self._coming.get(name):
            older.end(refuse(Reason.LINK_SUPERSEDED, f"a newer link of {name} came"))
        self._coming[name] = link
        try:
            yield
        finally:
            if self._coming[name] is link:
                del self._coming[name]

    def _first(self, name: str) -> Machine | None:
        """The machine that has the daemon's link now, here or elsewhere."""
        links = self._fleet.links
        if link := links.get(name):
            return _machine(link.hello, links.epoch(name))
        row = self._fleet.directory.daemons.get(name)
        if row is None or not row.live or row.lease.holder == self._me.uri:
            return None
        said = row.lease.attributes
        return Machine(
            said.get("instance", ""), said.get("boot", ""), said.get("journal", ""), row.lease.epoch
        )

    async def _answer(self, name: str, workspace: str) -> None:
        """Have the daemon that is linked now answer; raises when it does not."""
        connection = await self._fleet.connection(name, workspace)
        await one(connection.call("describe", hand_pb2.DescribeRequest()))


def _machine(hello: pb.Hello, epoch: int) -> Machine:
    return Machine(hello.instance_id, hello.boot_id, hello.journal_id, epoch)
