"""The hands this daemon has: made, adopted after a restart, kept, ended.

Each is a row in the journal, a folder, and while it lives a keeper with its
task. What the daemon finds without a row, it removes.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from carpal.errors import CarpalError, refuse
from carpal.mounts import Mount
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import orchestrator_pb2
from hands import folders, kept, mounts, results, saving, spool
from hands.api import Hand, HandLost, HandType, Order, ProvisionFailed, Result
from hands.blobs import Blobs
from hands.journal import CallRow, HandRow, Journal
from hands.keeper import Keeper
from hands.making import Making

log = logging.getLogger(__name__)

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
    ) -> None:
        self.journal = journal
        self.blobs = blobs
        self.types = types
        self.boot_id = boot_id
        self.hands_max = hands_max
        self.draining = bool(journal.note(_DRAINED))
        """No new hands are taken; those there are go on."""
        self.keepers: dict[str, Keeper] = {}
        """Live hands by id."""
        self.making: dict[str, Making] = {}
        """Hands that are being made."""
        self._mounting: set[Hand] = set()
        """Hands that are there and get their mounts."""
        self._group = group
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._saves: dict[tuple[str, str], asyncio.Task[pb.Attachment | CarpalError]] = {}
        self._releases: dict[str, asyncio.Task[Exception | None]] = {}
        self._folder = folder

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

    def folder_of(self, hand_id: str) -> Path:
        """A hand's own folder."""
        return self._folder / hand_id

    async def contact(self) -> None:
        """A brain with a live lease was heard."""
        for keeper in list(self.keepers.values()):
            await keeper.contact()
        for hand in list(self._mounting):
            await hand.contact()

    # New hands.

    def provision(
        self, row: HandRow, session_id: str, order: Order, mounted: Sequence[Mount] = ()
    ) -> Making:
        """Start to make a hand that has no row yet. AT_CAPACITY when there is no room."""
        if self.draining:
            raise refuse(Reason.AT_CAPACITY, "this daemon is draining and takes no new hands")
        if self.count >= self.hands_max:
            taken = f"this daemon has {self.count} hands, as many as it takes"
            raise refuse(Reason.AT_CAPACITY, taken)
        self.journal.provisioning(row, session_id)
        making = self.making[row.hand_id] = Making()
        self._tasks[row.hand_id] = self._group.create_task(
            self._make(row, order, making, session_id, mounted)
        )
        return making

    async def _make(
        self,
        row: HandRow,
        order: Order,
        making: Making,
        session_id: str,
        mounted: Sequence[Mount],
    ) -> None:
        async def place(hand: Hand) -> list[str]:
            return await mounts.place(hand, mounted, self.blobs, session_id, making.progress)

        try:
            outcome = await self._try_to_make(row, order, making, place)
        except CarpalError as error:
            await self._reap(row.type, row.hand_id)
            await self._remove(order.folder)
            # Last: from here on the id may be tried again.
            self.journal.not_provisioned(row.hand_id)
            outcome = error
        del self.making[row.hand_id]
        making.finish(outcome)

    async def _try_to_make(
        self,
        row: HandRow,
        order: Order,
        making: Making,
        place: Callable[[Hand], Awaitable[list[str]]],
    ) -> pb.ProvisionResult | CarpalError:
        try:
            folders.make(order.folder)
            provisioned = await self.types[row.type].provision(order, making.progress)
            placed = await self._with_mounts(provisioned.hand, place)
        except CarpalError:
            raise
        except (ProvisionFailed, OSError) as error:
            why = str(error) or type(error).__name__
            raise refuse(Reason.PROVISION_FAILED, f"the hand did not start: {why}") from error
        except Exception as error:  # a hand type's own bug must not end the daemon
            log.exception("hand type failed", extra={"hand_id": row.hand_id, "type": row.type})
            raise refuse(Reason.PROVISION_FAILED, f"the hand type failed: {error}") from error
        result = pb.ProvisionResult(
            journal_id=self.journal.journal_id,
            boot_id=self.boot_id,
            sequence=self.journal.sequence + 1,
            note="\n".join((provisioned.note, *(f"Mounted: {each}" for each in placed))),
            not_enforced=provisioned.not_enforced,
        )
        self.journal.provisioned(row.hand_id, provisioned.state, result.SerializeToString())
        self._keep(row, provisioned.hand)
        log.info("hand provisioned", extra={"hand_id": row.hand_id, "type": row.type})
        return result

    async def _with_mounts(
        self, hand: Hand, place: Callable[[Hand], Awaitable[list[str]]]
    ) -> list[str]:
        """Place what is to be mounted; without all of it there is no hand."""
        self._mounting.add(hand)
        try:
            return await place(hand)
        except BaseException:
            try:
                await hand.release()
            except HandLost as error:
                log.info("hand without its mounts", extra={"why": str(error)})
            raise
        finally:
            self._mounting.discard(hand)

    def _keep(self, row: HandRow, hand: Hand) -> Keeper:
        folder = self.folder_of(row.hand_id)

        async def reap() -> Mapping[str, Result]:
            return await self._reap(row.type, row.hand_id)

        async def keep(result: Result) -> Result:
            sessions = self.journal.sessions_of(row.hand_id)
            return await kept.taken(result, folder, self.blobs, sessions)

        keeper = Keeper(row, hand, self.journal, folder, reap=reap, keep=keep)
        self.keepers[row.hand_id] = keeper
        self._tasks[row.hand_id] = self._group.create_task(self._watch(keeper))
        return keeper

    async def _watch(self, keeper: Keeper) -> None:
        await keeper.run()
        self.keepers.pop(keeper.hand_id, None)

    async def save(self, keeper: Keeper, session_id: str, save_id: str) -> pb.Attachment:
        """A hand's workspace as a blob, as it was answered before; it goes on whoever waits."""
        if kept := self.journal.saved(keeper.hand_id, save_id):
            return pb.Attachment.FromString(kept)
        key = (keeper.hand_id, save_id)
        task = self._saves.get(key)
        if task is None:
            work = self._try_to_save(keeper, session_id, save_id)
            task = self._saves[key] = self._group.create_task(work)
        outcome = await asyncio.shield(task)
        if isinstance(outcome, CarpalError):
            raise outcome
        return outcome

    async def _try_to_save(
        self, keeper: Keeper, session_id: str, save_id: str
    ) -> pb.Attachment | CarpalError:
        try:
            saved = await keeper.save(self.blobs, session_id, save_id)
            if self.keepers.get(keeper.hand_id) is keeper:  # not of a hand released meanwhile
                self.journal.keep_saved(keeper.hand_id, save_id, saved.SerializeToString())
        except CarpalError as error:
            return error
        except sqlite3.Error:
            raise  # the journal's ends the daemon
        except Exception as error:  # a hand type's own bug must not end the daemon
            log.exception("hand type failed", extra={"hand_id": keeper.hand_id})
            return saving.failed(f"the hand type failed: {error}")
        finally:
            del self._saves[keeper.hand_id, save_id]
        return saved

    # The end of hands.

    async def release(self, row: HandRow) -> None:
        """End a hand, live or lost, and leave nothing of it but its id; it goes on whoever waits.

        Raises OSError when something of its folder resists; it may be asked again.
        """
        task = self._releases.get(row.hand_id)
        if task is None:
            task = self._releases[row.hand_id] = self._group.create_task(self._try_to_end(row))
        if error := await asyncio.shield(task):
            raise error

    async def _try_to_end(self, row: HandRow) -> Exception | None:
        try:
            await self._end(row)
        except sqlite3.Error:
            raise  # the journal's ends the daemon
        except Exception as error:  # told to who waits; it must not end the daemon
            log.exception("hand not released", extra={"hand_id": row.hand_id})
            return error
        finally:
            del self._releases[row.hand_id]
        return None

    async def _end(self, row: HandRow) -> None:
        if row.hand_id in self.making:
            # What a hand type has begun it finishes: a hand would come to be after its release.
            await asyncio.wait({self._tasks[row.hand_id]})
        keeper = self.keepers.pop(row.hand_id, None)
        if keeper is not None:
            self._tasks.pop(row.hand_id).cancel()
            await keeper.release()
        folder = self.folder_of(row.hand_id)
        if row.type in self.types:
            await self.types[row.type].reap(row.hand_id, folder)
        await asyncio.to_thread(folders.remove, folder)
        self.journal.released(row.hand_id)
        log.info("hand released", extra={"hand_id": row.hand_id})

    async def detach(self) -> None:
        """The daemon ends: hands and their calls go on."""
        for task in (*self._tasks.values(), *self._saves.values()):
            task.cancel()
        for keeper in self.keepers.values():
            await keeper.detach()

    # After a restart.

    async def adopt(self) -> None:
        """Take up what an earlier daemon left, settle what cannot be, remove what nobody owns."""
        for row in self.journal.hands():
            if row.state == "provisioning":
                await self._reap(row.type, row.hand_id)
                self.journal.not_provisioned(row.hand_id)
            elif row.state == "live":
                await self._adopt_hand(row)
            else:
                self._settle_open(row.hand_id, row.reason)
        for folder in sorted(self._folder.iterdir()):
            known = self.journal.hand(folder.name)
            if known is None or known.state == "released":
                for name in self.types:
                    await self._reap(name, folder.name)
                log.warning("removing a hand that nobody owns", extra={"hand_id": folder.name})
                await self._remove(folder)

    async def _adopt_hand(self, row: HandRow) -> None:
        try:
            if row.boot_id != self.boot_id:
                raise HandLost("the machine restarted")
            if row.type not in self.types:
                raise HandLost(f"this daemon no longer has the hand type {row.type!r}")
            folder = self.folder_of(row.hand_id)
            hand = await self.types[row.type].adopt(row.hand_id, folder, row.facts)
        except HandLost as error:
            await self._give_up(row, str(error))
            return
        except Exception as error:  # a hand type's own bug must not end the daemon
            log.exception("hand type failed", extra={"hand_id": row.hand_id, "type": row.type})
            await self._give_up(row, f"its hand type failed: {error}")
            return
        keeper = self._keep(row, hand)
        for call in self.journal.open_calls(row.hand_id):
            if call.call_id in hand.held:
                if call.state == "accepted":  # in a journal that went back
                    self.journal.starting(row.hand_id, call.call_id)
                keeper.resume(call.call_id)
            else:
                self._settle(call, "the daemon died around it")
        for call_id in hand.held - keeper.open.keys():
            # Its result was journaled, but the daemon died before saying so.
            await hand.acknowledge(call_id)
        spool.sweep(self.folder_of(row.hand_id), self.journal.unacknowledged(row.hand_id))
        log.info("hand adopted", extra={"hand_id": row.hand_id, "calls": len(keeper.open)})

    async def _give_up(self, row: HandRow, reason: str) -> None:
        """A hand that cannot be adopted: kill what is left of it, then settle its calls."""
        left = await self._reap(row.type, row.hand_id)
        self._settle_open(row.hand_id, reason, left)
        self.journal.lost(row.hand_id, reason)
        log.warning("hand not adopted", extra={"hand_id": row.hand_id, "reason": reason})

    async def _reap(self, type_name: str, hand_id: str) -> Mapping[str, Result]:
        """Kill what is left of a hand; the results it left that nobody took."""
        if type_name not in self.types:
            return {}
        folder = self.folder_of(hand_id)
        await self.types[type_name].reap(hand_id, folder)
        return await self.types[type_name].left(hand_id, folder)

    async def _remove(self, folder: Path) -> None:
        """Remove a folder nobody needs; one that resists must not keep the rest from going on."""
        try:
            await asyncio.to_thread(folders.remove, folder)
        except OSError as error:
            log.warning("not removed", extra={"folder": str(folder), "why": str(error)})

    def _settle_open(
        self, hand_id: str, reason: str, left: Mapping[str, Result] = MappingProxyType({})
    ) -> None:
        for call in self.journal.open_calls(hand_id):
            self._settle(call, reason, left.get(call.call_id))

    def _settle(self, call: CallRow, reason: str, left: Result | None = None) -> None:
        """A call the hand does not hold, whose tree is dead: as it ended, or interrupted.

        Never accepted, when nobody was told of it.
        """
        if call.state == "accepted":
            self.journal.dropped(call.hand_id, call.call_id)
            return
        result = left or results.interrupted(reason)
        message = results.to_message(result, self.journal.sequence + 1)
        self.journal.terminal(
            call.hand_id, call.call_id, result.outcome, message.SerializeToString()
        )


@asynccontextmanager
async def open_inventory(
    *,
    journal: Journal,
    types: Mapping[str, HandType],
    folder: Path,
    boot_id: str,
    hands_max: int,
    blobs: Blobs | None = None,
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
        )
        try:
            await inventory.adopt()
            yield inventory
        finally:
            await inventory.detach()
