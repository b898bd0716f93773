"""Makes hands: what a hand type provisions, with what is mounted in it, or nothing of it at all."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from carpal.errors import CarpalError, refuse
from carpal.mounts import Mount
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.blobs import Blobs
from hands.contract import Hand, HandLost, HandType, NotBegun, Order, ProvisionFailed
from hands.describe import tool_infos
from hands.journal import HandRow, Journal
from hands.life import folders, mounts
from hands.life.making import Making
from hands.life.remains import RESISTS, Remains
from hands.life.units import Units

log = logging.getLogger(__name__)


class Maker:
    """Of one daemon's hands."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        journal: Journal,
        remains: Remains,
        *,
        types: Mapping[str, HandType],
        boot_id: str,
        blobs: Blobs,
        units: Units,
        keep: Callable[[HandRow, Hand], object],
    ) -> None:
        """`keep` takes a hand that is made and journaled."""
        self.making: dict[str, Making] = {}
        """Hands that are being made."""
        self._mounting: set[Hand] = set()
        """Hands that are there and get their mounts."""
        self._group = group
        self._journal = journal
        self._remains = remains
        self._types = types
        self._boot_id = boot_id
        self._blobs = blobs
        self._units = units
        self._keep = keep
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(
        self, row: HandRow, session_id: str, order: Order, mounted: Sequence[Mount]
    ) -> Making:
        """Start to make a hand that has no row yet."""
        self._journal.provisioning(row, session_id, order.unit)
        making = self.making[row.hand_id] = Making()
        work = self._make(row, order, making, session_id, mounted)
        self._tasks[row.hand_id] = self._group.create_task(work)
        return making

    async def contact(self) -> None:
        """A brain with a live lease was heard."""
        for hand in list(self._mounting):
            await hand.contact()

    async def stop(self, hand_id: str) -> None:
        """It is released: nothing more is mounted in it, and it is made, or not, when this returns.

        What a hand type has begun it finishes: a hand would come to be after its release.
        """
        if making := self.making.get(hand_id):
            making.release()
            await asyncio.wait({self._tasks[hand_id]})

    def detach(self) -> None:
        """The daemon ends."""
        for task in self._tasks.values():
            task.cancel()

    async def _make(
        self,
        row: HandRow,
        order: Order,
        making: Making,
        session_id: str,
        mounted: Sequence[Mount],
    ) -> None:
        async def place(hand: Hand) -> list[str]:
            return await mounts.place(hand, mounted, self._blobs, session_id, making.progress)

        outcome: pb.ProvisionResult | CarpalError
        try:
            outcome = await self._try_to_make(row, order, making, place)
        except CarpalError as error:
            if making.begun and not await self._remains.reap(row.type, row.hand_id):
                self._journal.lost(row.hand_id, f"it was not made; {RESISTS}")
            else:
                await self._remains.remove(row.hand_id)
                if making.released:  # its id is spent
                    self._journal.lost(row.hand_id, "it was released while it was made")
                else:  # last: from here on the id may be tried again
                    self._journal.not_provisioned(row.hand_id)
            outcome = error
        del self.making[row.hand_id], self._tasks[row.hand_id]
        if self._journal.hand(row.hand_id) is None:  # else it may find no unit when tried again
            await self._units.ended(row.hand_id)
        making.finish(outcome)

    async def _try_to_make(
        self, row: HandRow, order: Order, making: Making, place: mounts.Place
    ) -> pb.ProvisionResult:
        try:
            folders.make(order.folder)
            await self._units.before(row.type, order.unit, row.hand_id)
            making.begun = True
            provisioned = await self._types[row.type].provision(order, making.progress)
            placed = await self._with_mounts(provisioned.hand, making, place)
        except CarpalError:
            raise
        except (ProvisionFailed, OSError) as error:
            making.begun = making.begun and not isinstance(error, NotBegun)
            why = str(error) or type(error).__name__
            action = error.action if isinstance(error, ProvisionFailed) else ""
            told = {"action": action} if action else {}
            message = f"the hand did not start: {why}"
            raise refuse(Reason.PROVISION_FAILED, message, **told) from error
        except Exception as error:  # a hand type's own bug must not end the daemon
            log.exception("hand type failed", extra={"hand_id": row.hand_id, "type": row.type})
            raise refuse(Reason.PROVISION_FAILED, f"the hand type failed: {error}") from error
        result = pb.ProvisionResult(
            journal_id=self._journal.journal_id,
            boot_id=self._boot_id,
            sequence=self._journal.sequence + 1,
            note="\n".join((provisioned.note, *(f"Mounted: {each}" for each in placed))),
            not_enforced=provisioned.not_enforced,
            tools=tool_infos(provisioned.tools),
        )
        self._journal.provisioned(row.hand_id, provisioned.state, result.SerializeToString())
        self._keep(row, provisioned.hand)
        log.info("hand provisioned", extra={"hand_id": row.hand_id, "type": row.type})
        return result

    async def _with_mounts(self, hand: Hand, making: Making, place: mounts.Place) -> list[str]:
        """Place what is to be mounted; without all of it there is no hand."""
        self._mounting.add(hand)
        try:
            async with making.until_released():
                return await place(hand)
        except BaseException:
            try:
                await hand.release()
            except HandLost as error:
                log.info("hand without its mounts", extra={"why": str(error)})
            raise
        finally:
            self._mounting.discard(hand)
