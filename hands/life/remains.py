"""What hands leave that ended: results, processes, folders, and calls without a result.

Here hand types are asked about them. One that has a bug, or a hand of which
something resists, is logged and tried again at a release: it ends no daemon,
and keeps none from starting.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from carpal.hand_mark import mark
from hands import results
from hands.contract import HandLost, HandType, Result
from hands.inside import tree
from hands.isolation import uids
from hands.journal import CallRow, Journal
from hands.life import folders, kept

log = logging.getLogger(__name__)

_KILL_LIMIT = 30.0
"""Seconds to wait for what a hand left to be dead; a type of ours gives up after half of that."""
_CLOSE_LIMIT = 5.0
"""Seconds for a hand type to leave off, when the daemon ends."""
RESISTS = "what it started could not be ended, and may still run"
"""Said of what could not be killed; never that it is dead."""


class Remains:
    """Of one daemon's hands."""

    def __init__(self, journal: Journal, types: Mapping[str, HandType], folder: Path) -> None:
        """`folder` holds the hands' own."""
        self._journal = journal
        self._types = types
        self.folder = folder
        self._killing: dict[tuple[str, str], asyncio.Task[None]] = {}
        """What is being killed, by type and hand: once at a time, whoever waits for it."""
        self._why: dict[tuple[str, str], str] = {}

    def folder_of(self, hand_id: str) -> Path:
        """A hand's own folder."""
        return self.folder / hand_id

    async def left(self, type_name: str, hand_id: str) -> Mapping[str, Result]:
        """Results, by call, that nobody took; to be asked for before the hand is reaped."""
        if type_name not in self._types:
            return {}
        try:
            left = await self._types[type_name].left(hand_id, self.folder_of(hand_id))
        except Exception:  # a hand type's own bug
            log.exception("hand type failed", extra={"hand_id": hand_id, "type": type_name})
            return {}
        return {call_id: kept.without(result) for call_id, result in left.items()}

    async def kill(self, type_name: str, hand_id: str) -> None:
        """Kill what is left of a hand. Raises whatever its type does when something resists.

        TimeoutError, which is an OSError, after a bounded wait; it goes on all the same.
        """
        killing = self._begin_to_kill(type_name, hand_id)
        done, _ = await asyncio.wait({killing}, timeout=_KILL_LIMIT)
        if not done:
            killing.add_done_callback(_tell)
            raise TimeoutError(f"after {_KILL_LIMIT:g} s {RESISTS}")
        killing.result()

    def _begin_to_kill(self, type_name: str, hand_id: str) -> asyncio.Task[None]:
        key = (type_name, hand_id)
        if key not in self._killing:
            killing = asyncio.create_task(self._kill(type_name, hand_id))
            self._killing[key] = killing
            killing.add_done_callback(lambda _: self._killing.pop(key))
        return self._killing[key]

    async def _kill(self, type_name: str, hand_id: str) -> None:
        folder = self.folder_of(hand_id)
        if type_name in self._types:
            await self._types[type_name].reap(hand_id, folder)
        else:  # all types give what they start the same mark
            theirs = uids.anothers(folder)
            await asyncio.to_thread(tree.kill_marked, mark(folder), theirs)

    async def reap(self, type_name: str, hand_id: str, limit: float | None = None) -> bool:
        """Kill what is left of a hand; whether all of it was dead within `limit` seconds.

        Without `limit` the wait is bounded too. What takes longer goes on to its end all the
        same, until `close`.
        """
        killing = self._begin_to_kill(type_name, hand_id)
        within = _KILL_LIMIT if limit is None else limit
        done, _ = await asyncio.wait({killing}, timeout=within)
        if not done:
            log.warning("a hand's remains take long to kill", extra={"hand_id": hand_id})
            self._why[type_name, hand_id] = f"after {within:g} s {RESISTS}"
            killing.add_done_callback(_tell)
            return False
        try:
            killing.result()
        except Exception as error:  # it resists, or that is a hand type's own bug
            about = {"hand_id": hand_id, "type": type_name, "why": str(error)}
            told = isinstance(error, HandLost)  # in its type's own words
            log.warning("a hand's remains resist", exc_info=not told, extra=about)
            self._why[type_name, hand_id] = str(error) or type(error).__name__
            return False
        self._why.pop((type_name, hand_id), None)
        return True

    def why(self, type_name: str, hand_id: str) -> str:
        """Why what is left of a hand was not reaped when that was tried last; empty when it was."""
        return self._why.get((type_name, hand_id), "")

    async def close(self) -> None:
        """The daemon ends: the next one kills what is left."""
        killing = set(self._killing.values())
        for each in killing:
            each.cancel()
        if killing:
            _, left = await asyncio.wait(killing, timeout=_CLOSE_LIMIT)
            if left:
                log.warning("hand types do not leave off killing", extra={"hands": len(left)})

    async def remove(self, hand_id: str) -> None:
        """Remove a folder nobody needs; one that resists must not keep the rest from going on."""
        folder = self.folder_of(hand_id)
        try:
            await asyncio.to_thread(folders.remove, folder)
        except OSError as error:
            log.warning("not removed", extra={"folder": str(folder), "why": str(error)})

    def settle_open(
        self, hand_id: str, reason: str, left: Mapping[str, Result] = MappingProxyType({})
    ) -> None:
        """Settle every call of a hand that has no result."""
        for call in self._journal.open_calls(hand_id):
            self.settle(call, reason, left.get(call.call_id))

    def settle(self, call: CallRow, reason: str, left: Result | None = None) -> None:
        """A call that the hand does not hold: as it ended, or interrupted.

        Never accepted, when nobody was told of it.
        """
        if call.state == "accepted":
            self._journal.dropped(call.hand_id, call.call_id)
            return
        result = left or results.interrupted(reason)
        message = results.to_message(result, self._journal.sequence + 1)
        self._journal.terminal(
            call.hand_id, call.call_id, result.outcome, message.SerializeToString()
        )


def _tell(killing: asyncio.Task[None]) -> None:
    """How it went after all, when nobody waits for that any more."""
    if not killing.cancelled() and (error := killing.exception()):
        log.warning("a hand's remains resist", exc_info=error, extra={"why": str(error)})
