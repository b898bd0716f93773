"""The daemon's life: dial a brain, say hello, serve the link, and dial again when it ends.

It is linked to one brain at a time and obeys only a link newer than any
before. The first attempt after a loss is jittered too, so that a brain's
daemons do not come back in one instant.

With a new certificate a new link is opened first, and only then the old one is
ended: gRPC cannot change the certificate of a connection, and a call that goes
on is asked about on the link that is there already.
"""

import asyncio
import logging
import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

from carpal import __version__
from carpal.backoff import Backoff
from carpal.client import connected, dial
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity, Role
from carpal.ids import new_id
from carpal.link import PROTOCOL_MAX, PROTOCOL_MIN
from carpal.link_terms import CAPABILITIES
from carpal.proxy import Way, by
from carpal.releases import RELEASED
from carpal.status import Reason
from carpal.tls import Loaded, Shown
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import types_pb2
from hands.inventory import Inventory
from hands.link.brain_check import BrainCheck
from hands.link.brain_link import BrainLink, at
from hands.link.dialling import Dialling
from hands.local.status import LinkStatus
from hands.service import HandService

log = logging.getLogger(__name__)

_LAST_EPOCH = "last_epoch"
_FIRST_WAIT = 1.0
"""Seconds over which the daemons of a brain that died spread their first attempt."""

_As: TypeAlias = tuple[bytes, bytes, list[tuple[str, ...]]]
"""A chain and the authorities trusted, PEM; types with their tools."""
_ENDED = refuse(Reason.UNREACHABLE, "the brain drained", action="wait: another is dialled")
"""Of a link that ended as it should."""


class Daemon:
    """Keeps one link up, to whichever brain answers."""

    def __init__(
        self,
        shown: Callable[[], Shown],
        service: HandService,
        inventory: Inventory,
        *,
        labels: Mapping[str, str],
        brains: Callable[[], list[str]],
        on_brains: Callable[[Sequence[str]], None],
        welcomed: Callable[[pb.Welcome], None],
        refused: Callable[[CarpalError], None] = lambda _: None,
        reconnect_max: float = 60.0,
        way: Way | None = None,
        status: LinkStatus | None = None,
        check: BrainCheck | None = None,
    ) -> None:
        """`shown` is the identity to dial with, asked for at each dial.

        `brains` gives the addresses to dial; `on_brains` is told which there are now.
        `welcomed` is told of each link; `refused` of each that could not be made.
        `reconnect_max`: seconds between attempts, at most. `status` is kept true.
        """
        self._shown = shown
        self._service = service
        self._inventory = inventory
        self._status = status or LinkStatus()
        self._labels = labels
        self._brains = brains
        self._dialling = Dialling(brains)
        self._on_brains = on_brains
        self._welcomed = welcomed
        self._refused = refused
        self._way = way or Way()
        self._check = check or BrainCheck()
        self._instance_id = new_id("inst")
        self._link: BrainLink | None = None
        self._linked_as: _As | None = None
        """With what, and telling of what, a brain was told hello that welcomed it."""
        self._backoff = Backoff(_FIRST_WAIT, reconnect_max)
        self._address = ""
        """Of the brain that was linked to last."""
        self._serving: asyncio.Task[bool] | None = None
        """The link that counts; a successor takes its place before it ends."""
        self._tasks: set[asyncio.Task[bool]] = set()
        """Every link that has not ended."""
        self._succeeding = asyncio.Lock()
        """Held while a successor is being made."""
        self._greeting = asyncio.Lock()
        """Held from a hello to its welcome. Of two on their way at once the later would not know
        of the link that the earlier got, as a copy of this machine would not."""
        self._succeeded = asyncio.Event()
        self._refreshes = 0
        """How often `refresh` was asked."""
        self._later: set[asyncio.Task[None]] = set()
        """Refreshes that a link told too little was made to wait for."""
        self._stopping = False

    async def run(self) -> None:
        """Until `stop`; what goes wrong with links is logged and tried again."""
        try:
            while not self._stopping:
                if self._serving is None:
                    self._serving = self._start(self._dialling.next(), self._shown())
                asked_to_leave = await self._until_over()
                # A brain that drains has spread its daemons itself.
                if not self._stopping and not asked_to_leave:
                    await self._rest(self._backoff.next())
        finally:
            left = (*self._tasks, *self._later)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _start(
        self, address: str, shown: Shown, welcomed: asyncio.Event | None = None
    ) -> "asyncio.Task[bool]":
        task = asyncio.create_task(self._serve(address, shown, welcomed), name=address)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _until_over(self) -> bool:
        """Wait for the link's end, and for that of every link that takes its place.

        Whether the brain asked for it.
        """
        asked_to_leave = False
        while serving := self._serving:
            await asyncio.wait({serving})
            async with self._succeeding:  # the brain may end this one before it welcomes the next
                if self._serving is serving:
                    self._serving = None
            error, asked_to_leave = _end_of(serving)
            if self._serving is not None:
                continue
            address = serving.get_name()
            if self._status.is_linked:
                self._dialling.left(address)
            self._status.not_linked(error or _ENDED)
            if error is not None:
                self._refused(error)
                about = {"brain": address, "reason": error.reason, "why": str(error)}
                log.warning("link lost", extra=about)
        return asked_to_leave

    async def _rest(self, seconds: float) -> None:
        """Wait, unless a link is made meanwhile."""
        self._succeeded.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._succeeded.wait()
        except TimeoutError:
            pass

    async def relink(self, shown: Shown) -> None:
        """Open a link with `shown`, then end the one there is: no call notices.

        Asks the linked brain first, then the others: one that refuses may have
        been taken over. Raises what the last one said; then the link there is goes on.
        """
        failure = refuse(Reason.UNREACHABLE, "no brain is known")
        async with self._succeeding:
            for address in dict.fromkeys((self._address or self._brains()[0], *self._brains())):
                welcomed = asyncio.Event()
                serving = self._start(address, shown, welcomed)
                welcoming = asyncio.create_task(welcomed.wait())
                try:
                    await asyncio.wait({serving, welcoming}, return_when=asyncio.FIRST_COMPLETED)
                    if welcomed.is_set():
                        self._serving = serving
                        self._succeeded.set()
                        return
                finally:
                    welcoming.cancel()
                    if self._serving is not serving:
                        serving.cancel()
                        await asyncio.wait({serving})
                failure = _end_of(serving)[0] or failure
        raise failure

    async def refresh(self, shown: Shown) -> None:
        """As `relink`, unless the link there is was made with `shown`, and told of these types.

        Where there is none, the next one is; one that is on its way is followed by another, if it
        said hello with what was so before.
        """
        self._refreshes += 1
        now = self._as(shown.load_valid())
        if self._linked_as is not None and self._linked_as != now:
            await self.relink(shown)

    async def _refresh_later(self) -> None:
        async with self._succeeding:
            pass  # whoever renews shows the new identity once this is free
        try:
            await self.refresh(self._shown())
        except (CarpalError, OSError) as error:
            log.error("not reloaded, what there was stays", extra={"why": str(error)})

    def _as(self, me: Loaded) -> "_As":
        offered = [
            (kind.type, *(tool.name for tool in kind.tools)) for kind in self._service.types()
        ]
        return me.chain, me.ca, offered

    def stop(self, reason: str) -> bool:
        """Take no new hands and end the link; supervisors and their calls go on.

        False when there is no link whose end is worth waiting for.
        """
        self._stopping = True
        self._inventory.draining = True
        if self._link is None:
            return False
        self._link.end(reason)
        return True

    async def _serve(
        self, address: str, shown: Shown, welcomed: asyncio.Event | None = None
    ) -> bool:
        """One link, from the dial to its end; whether the brain asked for that.

        From its welcome on it is the one that counts. Raises what it failed with.
        """
        refreshes = self._refreshes
        me = shown.load_valid()
        brain: Identity | None = None

        async def on_welcome(welcome: pb.Welcome) -> Identity:
            nonlocal brain
            brain = await self._check.welcomed(welcome, hello, me)
            older, self._link = self._link, link
            self._linked_as = linked_as
            self._address = address
            self._status.linked(brain.name, address)
            self._on_welcome(welcome, brain)
            await greeting.aclose()
            if welcomed is not None:
                welcomed.set()
            if older is not None and older is not link:
                older.end("a newer link took its place")
            if refreshes != self._refreshes:
                task = asyncio.create_task(self._refresh_later())
                self._later.add(task)
                task.add_done_callback(self._later.discard)
            return brain

        async def on_revocations(rows: Sequence[types_pb2.Revocation]) -> None:
            await self._check.told(rows, me.ca)
            if brain is not None:
                self._check.check(brain)

        proxy = self._way.to(address)
        dialled = dial(address, Role.BRAIN, shown, retry=False, proxy=proxy, follow=False)
        async with dialled as channel, AsyncExitStack() as greeting:
            await connected(channel)
            await greeting.enter_async_context(self._greeting)
            hello, linked_as = self._hello(me.identity), self._as(me)
            link = BrainLink(
                at(channel),
                f"the brain at {address}{by(proxy)}",
                hello,
                self._service,
                self._inventory,
                on_welcome=on_welcome,
                on_brains=self._told,
                on_revocations=on_revocations,
            )
            if self._link is None:
                self._link = link
            try:
                await link.run()
            finally:
                if self._link is link:
                    self._link = self._linked_as = None
        return link.asked_to_leave

    def _told(self, brains: Sequence[str]) -> None:
        self._dialling.told(brains)
        self._on_brains(brains)

    def _on_welcome(self, welcome: pb.Welcome, brain: Identity) -> None:
        self._inventory.journal.keep_note(_LAST_EPOCH, str(welcome.epoch))
        log.info("linked", extra={"brain": brain.name, "epoch": welcome.epoch})
        self._backoff.works()
        self._told(welcome.brains)
        self._welcomed(welcome)

    def _hello(self, me: Identity) -> pb.Hello:
        journal = self._inventory.journal
        return pb.Hello(
            daemon_id=me.name,
            instance_id=self._instance_id,
            boot_id=self._inventory.boot_id,
            journal_id=journal.journal_id,
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            version=__version__,
            released=RELEASED.isoformat(),
            capabilities=CAPABILITIES,
            labels={"host": platform.node(), "machine": platform.machine(), **self._labels},
            capacity=self._inventory.capacity,
            types=self._service.types(),
            last_epoch=int(journal.note(_LAST_EPOCH, "0")),
            unsettled=journal.unsettled + len(self._service.tunnels.records),
            nonce=secrets.token_bytes(32),
        )


def _end_of(serving: "asyncio.Task[bool]") -> tuple[CarpalError | None, bool]:
    """What a link failed with, and whether the brain asked for its end.

    What is no refusal is raised.
    """
    if serving.cancelled():
        return None, False
    error = serving.exception()
    if error is None:
        return None, serving.result()
    if isinstance(error, CarpalError):
        return error, False
    raise error
