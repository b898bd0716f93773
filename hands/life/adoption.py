"""What a daemon does first: it takes up the hands an earlier one left.

What cannot be adopted is killed and settled; what no row owns is removed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from hands.contract import Hand, HandLost, HandType
from hands.journal import HandRow, Journal
from hands.life import spool
from hands.life.keeper import Keeper
from hands.life.remains import RESISTS, Remains

log = logging.getLogger(__name__)


class Adoption:
    """Of one daemon's hands, once."""

    def __init__(
        self,
        journal: Journal,
        remains: Remains,
        *,
        types: Mapping[str, HandType],
        boot_id: str,
        keep: Callable[[HandRow, Hand], Keeper],
    ) -> None:
        """`keep` takes a hand that is adopted."""
        self._journal = journal
        self._remains = remains
        self._types = types
        self._boot_id = boot_id
        self._keep = keep

    async def run(self) -> None:
        """Take up what an earlier daemon left, settle what cannot be, remove what nobody owns."""
        for row in self._journal.hands():
            if row.state == "provisioning":
                await self._end_half_made(row)
            elif row.state == "live":
                await self._adopt(row)
            else:
                self._remains.settle_open(row.hand_id, row.reason)
        for folder in sorted(self._remains.folder.iterdir()):
            known = self._journal.hand(folder.name)
            if known is None or known.state == "released":
                await self._remove_unowned(folder.name)

    async def _end_half_made(self, row: HandRow) -> None:
        if await self._remains.reap(row.type, row.hand_id):
            self._journal.not_provisioned(row.hand_id)
        else:
            self._journal.lost(row.hand_id, f"the daemon died while it was made; {RESISTS}")

    async def _adopt(self, row: HandRow) -> None:
        try:
            if row.boot_id != self._boot_id:
                raise HandLost("the machine restarted")
            if row.type not in self._types:
                raise HandLost(f"this daemon no longer has the hand type {row.type!r}")
            folder = self._remains.folder_of(row.hand_id)
            hand = await self._types[row.type].adopt(row.hand_id, folder, row.facts)
        except HandLost as error:
            await self._give_up(row, str(error))
            return
        except Exception as error:  # a hand type's own bug must not end the daemon
            log.exception("hand type failed", extra={"hand_id": row.hand_id, "type": row.type})
            await self._give_up(row, f"its hand type failed: {error}")
            return
        keeper = self._keep(row, hand)
        for call in self._journal.open_calls(row.hand_id):
            if call.call_id in hand.held:
                if call.state == "accepted":  # in a journal that went back
                    self._journal.starting(row.hand_id, call.call_id)
                keeper.resume(call.call_id)
            else:
                self._remains.settle(call, "the daemon died around it")
        for call_id in hand.held - keeper.open.keys():
            # Its result was journaled, but the daemon died before saying so.
            await hand.acknowledge(call_id)
        wanted = self._journal.unacknowledged(row.hand_id)
        await asyncio.to_thread(spool.sweep, folder, wanted)
        log.info("hand adopted", extra={"hand_id": row.hand_id, "calls": len(keeper.open)})

    async def _give_up(self, row: HandRow, reason: str) -> None:
        """A hand that cannot be adopted: kill what is left of it, then settle its calls."""
        left = await self._remains.left(row.type, row.hand_id)
        if not await self._remains.reap(row.type, row.hand_id):
            reason = f"{reason}; {RESISTS}"
        self._remains.settle_open(row.hand_id, reason, left)
        self._journal.lost(row.hand_id, reason)
        log.warning("hand not adopted", extra={"hand_id": row.hand_id, "reason": reason})

    async def _remove_unowned(self, hand_id: str) -> None:
        log.warning("removing a hand that nobody owns", extra={"hand_id": hand_id})
        # Its type is not known; the last one is of those this daemon has no more.
        dead = [await self._remains.reap(name, hand_id) for name in (*self._types, "")]
        if all(dead):  # else it is found again by the next daemon
            await self._remains.remove(hand_id)
