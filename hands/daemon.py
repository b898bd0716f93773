"""The daemon's life: dial a brain, say hello, serve the link, and dial again when it ends.

It is linked to one brain at a time and obeys only a link newer than any
before. The first attempt after a loss is jittered too, so that a brain's
daemons do not come back in one instant.
"""

import asyncio
import hashlib
import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence

from carpal import __version__
from carpal.backoff import Backoff
from carpal.client import connected, dial
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.ids import new_id
from carpal.link import PROTOCOL_MAX, PROTOCOL_MIN
from carpal.tls import IdentityFiles
from carpal.v1 import orchestrator_pb2 as pb
from hands.brain_link import BrainLink, capacity_of, connect
from hands.dialling import Dialling
from hands.inventory import Inventory
from hands.service import HandService

log = logging.getLogger(__name__)

_LAST_EPOCH = "last_epoch"
_FIRST_WAIT = 1.0
"""Seconds over which the daemons of a brain that died spread their first attempt."""


class Daemon:
    """Keeps one link up, to whichever brain answers."""

    def __init__(
        self,
        files: IdentityFiles,
        service: HandService,
        inventory: Inventory,
        *,
        labels: Mapping[str, str],
        brains: Callable[[], list[str]],
        on_brains: Callable[[Sequence[str]], None],
        welcomed: Callable[[pb.Welcome], None],
    ) -> None:
        """`brains` gives the addresses to dial; `on_brains` is told which there are now.

        `welcomed` is told of each link.
        """
        self._files = files
        self._service = service
        self._inventory = inventory
        self._labels = labels
        self._dialling = Dialling(brains)
        self._on_brains = on_brains
        self._welcomed = welcomed
        self._instance_id = new_id("inst")
        self._link: BrainLink | None = None
        self._linked_at = 0.0
        """When the link was welcomed, on the monotonic clock; zero while it was not."""
        self._stopping = False

    async def run(self) -> None:
        """Until `stop`; what goes wrong with links is logged and tried again."""
        backoff = Backoff(first=_FIRST_WAIT)
        while not self._stopping:
            address = self._dialling.next()
            self._linked_at = 0.0
            asked_to_leave = False
            try:
                asked_to_leave = await self._serve(address)
            except CarpalError as error:
                log.warning(
                    "link lost", extra={"brain": address, "reason": error.reason, "why": str(error)}
                )
            if self._linked_at:
                self._dialling.left(address)
                backoff.ended(time.monotonic() - self._linked_at)
            # A brain that drains has spread its daemons itself.
            if not self._stopping and not asked_to_leave:
                await asyncio.sleep(backoff.next())

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

    async def _serve(self, address: str) -> bool:
        """Until the link ends; whether the brain asked for that. Raises what it failed with."""
        async with dial(address, Role.BRAIN, self._files, retry=False) as channel:
            await connected(channel)
            self._link = link = BrainLink(
                connect(channel),
                f"the brain at {address}",
                self._hello(),
                self._service,
                self._inventory,
                on_welcome=self._on_welcome,
                on_brains=self._told,
            )
            try:
                await link.run()
            finally:
                self._link = None
        return link.asked_to_leave

    def _told(self, brains: Sequence[str]) -> None:
        self._dialling.told(brains)
        self._on_brains(brains)

    async def _on_welcome(self, welcome: pb.Welcome) -> None:
        self._inventory.journal.keep_note(_LAST_EPOCH, str(welcome.epoch))
        log.info("linked", extra={"brain": welcome.brain, "epoch": welcome.epoch})
        self._linked_at = time.monotonic()
        self._told(welcome.brains)
        self._welcomed(welcome)

    def _hello(self) -> pb.Hello:
        journal = self._inventory.journal
        return pb.Hello(
            daemon_id=self._files.identity().name,
            instance_id=self._instance_id,
            boot_id=self._inventory.boot_id,
            journal_id=journal.journal_id,
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            version=__version__,
            capabilities=["claim", "replay"],
            labels={"host": platform.node(), "machine": platform.machine(), **self._labels},
            capacity=capacity_of(self._inventory),
            types=self._service.types(),
            inventory_digest=inventory_digest(self._inventory),
            last_epoch=int(journal.note(_LAST_EPOCH, "0")),
        )


def inventory_digest(inventory: Inventory) -> bytes:
    """SHA-256 over the sorted hand ids and their open calls."""
    lines = [
        " ".join((hand_id, *sorted(inventory.keepers[hand_id].open)))
        for hand_id in sorted(inventory.keepers)
    ]
    return hashlib.sha256("\n".join(lines).encode()).digest()
