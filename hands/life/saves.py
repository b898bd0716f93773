"""Saves under way: each goes on whoever waits, is answered once, and ends with its hand."""

import asyncio
import logging
import sqlite3

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.journal import Journal
from hands.life import saving
from hands.life.keeper import Keeper

log = logging.getLogger(__name__)


class Saves:
    """Of one daemon's hands."""

    def __init__(self, group: asyncio.TaskGroup, journal: Journal) -> None:
        self._group = group
        self._journal = journal
        self._tasks: dict[tuple[str, str], asyncio.Task[pb.Attachment | CarpalError]] = {}

    async def save(self, keeper: Keeper, session_id: str, save_id: str) -> pb.Attachment:
        """A hand's workspace as a blob, as it was answered before.

        Raises HAND_GONE when the hand is ended meanwhile, and what `saving.save` does.
        """
        if known := self._journal.saved(keeper.hand_id, save_id):
            return pb.Attachment.FromString(known)
        key = (keeper.hand_id, save_id)
        task = self._tasks.get(key)
        if task is None:
            work = self._try_to_save(keeper, session_id, save_id)
            task = self._tasks[key] = self._group.create_task(work)
            task.add_done_callback(lambda _: self._tasks.pop(key))
        await asyncio.wait({task})  # unlike a shield, it tells the end of the save from one's own
        if task.cancelled():
            raise refuse(Reason.HAND_GONE, f"hand {keeper.hand_id!r} was ended while it was saved")
        outcome = task.result()
        if isinstance(outcome, CarpalError):
            raise outcome
        return outcome

    async def end(self, hand_id: str) -> None:
        """The hand ends, and its saves with it."""
        tasks = [task for (of, _), task in self._tasks.items() if of == hand_id]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def detach(self) -> None:
        """The daemon ends."""
        for task in self._tasks.values():
            task.cancel()

    async def _try_to_save(
        self, keeper: Keeper, session_id: str, save_id: str
    ) -> pb.Attachment | CarpalError:
        try:
            saved = await keeper.save(session_id, save_id)
            self._journal.keep_saved(keeper.hand_id, save_id, saved.SerializeToString())
        except CarpalError as error:
            return error
        except sqlite3.Error:
            raise  # the journal's ends the daemon
        except Exception as error:  # a hand type's own bug must not end the daemon
            log.exception("hand type failed", extra={"hand_id": keeper.hand_id})
            return saving.failed(f"the hand type failed: {error}")
        return saved
