"""The hands this daemon has, and how many it takes: made, adopted, kept, and ended at a release.

Each is a row in the journal, a folder, and while it lives a keeper with its task.
"""

import asyncio
import dataclasses
import logging
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from carpal.errors import refuse
from carpal.mounts import Mount
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2
from hands.blobs import Blobs
from hands.contract import Closing, Hand, HandLost, HandType, Order, Preparing
from hands.counts import Counts
from hands.journal import HandRow, Journal
from hands.life import folders
from hands.life.adoption import Adoption
from hands.life.fetching import Fetching
from hands.life.keeper import Keeper
from hands.life.maker import Maker
from hands.life.making import Making
from hands.life.remains import Remains
from hands.life.saves import Saves
from hands.life.units import Units
from hands.owner.gate import Gate
from hands.unasked import Unasked

log = logging.getLogger(__name__)

_END_LIMIT = 10.0
"""Seconds for releases under way when the daemon ends; the next one goes on with the rest."""
_DRAINED = "drained"
"""Note in the journal: why no new hands are taken; empty when they are."""


class Inventory:
    """Use `open_inventory`."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        journal: Journal,
        *,
        types: Mapping[str, HandType],
        folder: Path,
        boot_id: str,
        hands_max: int,
        blobs: Blobs,
        counts: Counts,
        gate: Gate,
    ) -> None:
        self.journal = journal
        self.counts = counts
        self.blobs = blobs
        self.types = types
        self.boot_id = boot_id
        self.hands_max = gate.policy.hands_max(hands_max)
        self.gate = gate
        gate.changed.append(lambda now: self._bound(now.hands_max(hands_max)))
        journal.told = gate.became
        blobs.check = gate.outward.content_check
        self.draining = bool(journal.note(_DRAINED))
        """No new hands are taken; those there are go on."""
        self.keepers: dict[str, Keeper] = {}
        """Live hands by id."""
        self.saves = Saves(group, journal)
        self.unasked = Unasked(journal, counts=counts)
        self._group = group
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Of the keepers."""
        self._releases: dict[str, asyncio.Task[Exception | None]] = {}
        self._stops: dict[str, asyncio.Task[bool]] = {}
        self._remains = Remains(journal, types, folder)
        self.units = Units(group, journal, self._remains, types)
        self._maker = Maker(
            group,
            journal,
            self._remains,
            types=types,
            boot_id=boot_id,
            blobs=blobs,
            units=self.units,
            keep=self._keep,
        )

    @property
    def making(self) -> Mapping[str, Making]:
        """Hands that are being made."""
        return self._maker.making

    @property
    def count(self) -> int:
        """Hands that live or are being made."""
        return len(self.keepers) + len(self.making)

    @property
    def capacity(self) -> orchestrator_pb2.Capacity:
        """Room for hands, as the brain is told."""
        return orchestrator_pb2.Capacity(
            hands_max=self.hands_max, hands=self.count, draining=self.draining
        )

    def drain(self, why: str) -> None:
        """Take no new hands, until `lift`, also after a restart."""
        self.draining = True
        self.journal.keep_note(_DRAINED, why or "an operator said so")
        log.info("drained: no new hands are taken", extra={"why": why})

    def lift(self) -> None:
        """Take new hands again."""
        self.draining = False
        self.journal.keep_note(_DRAINED, "")
        log.info("new hands are taken again")

    def _bound(self, hands_max: int) -> None:
        self.hands_max = hands_max

    def folder_of(self, hand_id: str) -> Path:
        """A hand's own folder."""
        return self._remains.folder_of(hand_id)

    async def contact(self) -> None:
        """A brain with a live lease was heard."""
        for keeper in list(self.keepers.values()):
            await keeper.contact()
        await self._maker.contact()

    def provision(
        self,
        row: HandRow,
        session_id: str,
        order: Order,
        mounted: Sequence[Mount] = (),
        wanted: Mapping[str, str] = MappingProxyType({}),
    ) -> Making:
        """Start to make a hand that has no row yet. AT_CAPACITY when there is no room.

        `wanted` are labels of its unit: INVALID_FIELD when no unit has them.
        """
        if self.draining:
            raise refuse(Reason.AT_CAPACITY, "this daemon is draining and takes no new hands")
        if self.count >= self.hands_max:
            rule = self.gate.rule_of("hands_max")
            taken = f"this daemon has {self.count} hands, as many as it takes{rule}"
            raise refuse(Reason.AT_CAPACITY, taken)
        order = dataclasses.replace(order, unit=self.units.choose(row.type, wanted))
        return self._maker.begin(row, session_id, order, mounted)

    async def adopt(self) -> None:
        """Take up what an earlier daemon left."""
        adoption = Adoption(
            self.journal, self._remains, types=self.types, boot_id=self.boot_id, keep=self._keep
        )
        await adoption.run()
        self.units.settle()

    def _keep(self, row: HandRow, hand: Hand) -> Keeper:
        keeper = Keeper(
            row,
            hand,
            self.journal,
            self._remains,
            self.blobs,
            counts=self.counts,
            unasked=self.unasked,
            fetching=Fetching(
                self.types[row.type].describe(),
                self.blobs,
                lambda: self.gate.policy.takes("blob"),
            ),
        )
        self.keepers[row.hand_id] = keeper
        self._tasks[row.hand_id] = self._group.create_task(self._watch(keeper))
        return keeper

    async def _watch(self, keeper: Keeper) -> None:
        await keeper.run()
        self.keepers.pop(keeper.hand_id, None)
        self.units.settle(keeper.hand_id)

    async def release(self, row: HandRow) -> None:
        """End a hand, live or lost, and leave nothing of it but its id; it goes on whoever waits.

        Raises what its type does, or OSError, when something of it resists; it may be asked again.
        """
        task = self._releases.get(row.hand_id)
        if task is None:
            task = self._releases[row.hand_id] = self._group.create_task(self._try_to_end(row))
        if error := await asyncio.shield(task):
            raise error

    async def stop(self, hand_ids: Sequence[str]) -> list[str]:
        """End hands as the machine's owner says, with all they started; those that resist.

        It goes on whoever waits, and may be asked again. No brain is needed, nor told otherwise
        than by what it asks: the calls are interrupted, and the hands are gone.
        """
        tasks = {hand_id: self._stopping(hand_id) for hand_id in hand_ids}
        if tasks:
            await asyncio.wait(tasks.values())
        return [hand_id for hand_id, task in tasks.items() if not task.result()]

    def _stopping(self, hand_id: str) -> asyncio.Task[bool]:
        if release := self._releases.get(hand_id):  # which may wait for a stop itself
            return self._group.create_task(_went_well(release))
        if hand_id not in self._stops:
            self.gate.note("stop", hand=hand_id)
            task = self._stops[hand_id] = self._group.create_task(self._stop(hand_id))
            task.add_done_callback(lambda _: self._stops.pop(hand_id))
        return self._stops[hand_id]

    async def _stop(self, hand_id: str) -> bool:
        await self._maker.stop(hand_id)
        keeper = self.keepers.pop(hand_id, None)
        await self.saves.end(hand_id)
        if keeper is None:
            return True  # not made, or dead already
        self._tasks.pop(hand_id).cancel()
        dead = await keeper.stop()
        self.units.settle(hand_id)
        log.warning("hand stopped by the machine's owner", extra={"hand_id": hand_id, "dead": dead})
        return dead

    async def _try_to_end(self, row: HandRow) -> Exception | None:
        try:
            await self._end(row)
        except sqlite3.Error:
            raise  # the journal's ends the daemon
        except HandLost as error:  # in its type's own words
            log.warning("hand not released", extra={"hand_id": row.hand_id, "why": str(error)})
            return error
        except Exception as error:  # told to who waits; it must not end the daemon
            log.exception("hand not released", extra={"hand_id": row.hand_id})
            return error
        finally:
            del self._releases[row.hand_id]
        return None

    async def _end(self, row: HandRow) -> None:
        if stop := self._stops.get(row.hand_id):
            await asyncio.wait({stop})
        await self._maker.stop(row.hand_id)
        keeper = self.keepers.pop(row.hand_id, None)
        await self.saves.end(row.hand_id)
        if keeper is not None:
            self._tasks.pop(row.hand_id).cancel()
            await keeper.release()
        await self._remains.kill(row.type, row.hand_id)
        await asyncio.to_thread(folders.remove, self.folder_of(row.hand_id))
        self.journal.released(row.hand_id)
        self.unasked.released(row.hand_id)
        await self.units.ended(row.hand_id)
        log.info("hand released", extra={"hand_id": row.hand_id})

    async def detach(self) -> None:
        """The daemon ends: hands and their calls go on."""
        self._maker.detach()
        self.units.detach()
        self.saves.detach()
        for task in self._tasks.values():
            task.cancel()
        if ending := {*self._releases.values(), *self._stops.values()}:
            _, left = await asyncio.wait(ending, timeout=_END_LIMIT)
            for late in left:
                late.cancel()
        for keeper in self.keepers.values():
            await keeper.detach()
        await self._remains.close()


async def _went_well(release: asyncio.Task[Exception | None]) -> bool:
    return await asyncio.shield(release) is None


@asynccontextmanager
async def open_inventory(
    *,
    journal: Journal,
    types: Mapping[str, HandType],
    folder: Path,
    boot_id: str,
    hands_max: int,
    blobs: Blobs | None = None,
    counts: Counts | None = None,
    gate: Gate | None = None,
) -> AsyncIterator[Inventory]:
    """The inventory, everything adoptable adopted; at the end the hands are left running."""
    folders.make_parent(folder)
    async with asyncio.TaskGroup() as group:
        inventory = Inventory(
            group,
            journal,
            types=types,
            folder=folder,
            boot_id=boot_id,
            hands_max=hands_max,
            blobs=blobs or Blobs(),
            counts=counts or Counts(),
            gate=gate or Gate(),
        )
        try:
            # At once: one that takes its time is not waited for by each in turn.
            preparing = [kind.prepare() for kind in types.values() if isinstance(kind, Preparing)]
            await asyncio.gather(*preparing)
            await inventory.adopt()
            yield inventory
        finally:
            await inventory.detach()
            for kind in types.values():
                if isinstance(kind, Closing):
                    await kind.close()
