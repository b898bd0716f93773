"""Units of hand types: things that are not cattle, such as a phone or a bench; one hand has one.

Who holds a unit is in the journal with the hand's own first row, before anything is done to the
unit, and stays there until the hand is dead and the unit was reset: whichever process is killed,
no unit is given to two. One whose reset fails is in quarantine, with the reason, until it is
cleared.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from carpal.errors import CarpalError, invalid, refuse
from carpal.fault_points import point
from carpal.ids import check_id
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.contract import HandType, HasUnits, Unit, UnitsUnknown, having_units
from hands.journal import Journal
from hands.life.remains import Remains
from hands.life.unit_choice import Row, chosen

log = logging.getLogger(__name__)

RESET_LIMIT = 60.0
"""Seconds that a reset may take."""
_GONE = "its type no longer names it"
_NOT_ENDED = (
    "its hand is lost and could not be ended: {why}; mend that (a server behind a socket: start it)"
    ", and it is tried again when a hand wants a unit and none is free, or at the hand's release"
)
_Key = tuple[str, str]
"""A type, and the id of a unit of it."""


class Units:
    """Of one daemon."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        journal: Journal,
        remains: Remains,
        types: Mapping[str, HandType],
    ) -> None:
        self._group = group
        self._journal = journal
        self._remains = remains
        self._types = types
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        """The last reset after a hand, or clearing, of each."""
        self._resets: dict[_Key, asyncio.Task[None]] = {}
        """The last reset of each; one that was told to leave off may still run."""
        self._left = False
        """The daemon ends."""

    # What there is.

    def named(self, type_name: str) -> dict[str, Unit]:
        """The units that a type names now, by id. Raises UnitsUnknown."""
        kind = having_units(self._types.get(type_name))
        if kind is None:
            return {}
        try:
            found = {}
            for unit in kind.units():
                check_id(unit.unit_id, "unit_id")
                labels: dict[Any, Any] = dict(unit.labels)
                if not all(isinstance(each, str) for pair in labels.items() for each in pair):
                    raise invalid("labels", f"of unit {unit.unit_id!r} are not all strings")
                found[unit.unit_id] = unit
        except UnitsUnknown:
            raise
        except Exception as error:  # a hand type's own bug must not end the daemon
            log.exception("hand type failed", extra={"type": type_name})
            raise UnitsUnknown(f"what it names is wrong: {error}") from error
        return found

    def unknown(self) -> list[dict[str, Any]]:
        """Types that do not say which units they have, and why, as the local socket shows it."""
        found = []
        for name in sorted(self._types):
            try:
                self.named(name)
            except UnitsUnknown as error:
                found.append({"type": name, "reason": str(error)})
        return found

    def infos(self, type_name: str) -> list[pb.UnitInfo]:
        """Each unit as Describe shows it, also one in use or quarantine that is named no more."""
        return [info for info, _ in self._infos(type_name)]

    def rows(self) -> list[dict[str, Any]]:
        """Each unit of each type, as the local socket shows it."""
        return [
            {
                "type": name,
                "unit_id": info.unit_id,
                "labels": dict(info.labels),
                "holder": info.holder or None,
                "healthy": info.healthy,
                "reason": info.reason or None,
                "resetting": resetting,
            }
            for name in sorted(self._types)
            for info, resetting in self._infos(name)
        ]

    def _infos(self, type_name: str) -> list[tuple[pb.UnitInfo, bool]]:
        rows, not_named = self._rows(type_name), _GONE
        try:
            named = self.named(type_name)
        except UnitsUnknown as error:
            named, not_named = {}, f"which units there are is not known: {error}"
        kept = {each for each, row in rows.items() if row.holder or row.reason}
        infos = []
        for unit_id in sorted({*named, *kept}):
            unit, row = named.get(unit_id), rows.get(unit_id, Row())
            reason = row.reason
            if row.state == "held" and (why := self._remains.why(type_name, row.holder)):
                reason = _NOT_ENDED.format(why=why)
            info = pb.UnitInfo(
                unit_id=unit_id,
                labels=unit.labels if unit else {},
                holder=row.holder,
                healthy=unit is not None and not reason,
                reason=reason or ("" if unit else not_named),
            )
            resetting = row.state == "resetting" or bool(self._goes_on((type_name, unit_id)))
            infos.append((info, resetting))
        return infos

    # A hand's.

    def choose(self, type_name: str, wanted: Mapping[str, str]) -> str:
        """A unit for a hand; empty for a type without. Journal it before anything is awaited.

        INVALID_FIELD when no unit has the labels, AT_CAPACITY when none that has them is free,
        PROVISION_FAILED when the type does not say which there are.
        """
        if having_units(self._types[type_name]) is None:
            return ""
        try:
            named = self.named(type_name)
        except UnitsUnknown as error:
            why = f"which units {type_name!r} has is not known: {error}"
            action = "mend the hand type: `carpal hand units` shows whether it names them"
            raise refuse(Reason.PROVISION_FAILED, why, action=action) from error
        try:
            return chosen(type_name, named, self._rows(type_name), wanted)
        except CarpalError:
            # What hands have that are over and could not be ended: who asks again may get it.
            self.settle()
            raise

    async def before(self, type_name: str, unit_id: str, hand_id: str) -> None:
        """Reset it for the hand that has it. PROVISION_FAILED, and quarantine, when that fails."""
        if unit_id and (problem := await self._reset((type_name, unit_id), hand_id)):
            why = f"unit {unit_id!r} could not be reset, and is quarantined: {problem}"
            action = "provision again for another unit; `carpal hand units --clear` cures this one"
            raise refuse(Reason.PROVISION_FAILED, why, action=action)

    async def ended(self, hand_id: str) -> None:
        """A hand is over: returns once its unit is reset, in quarantine, or kept all the same."""
        if tasks := self.settle(hand_id):
            await asyncio.wait(tasks)

    def settle(self, hand_id: str = "") -> list[asyncio.Task[None]]:
        """Begin to reset what a hand had that is over; without its id, what all such hands had."""
        tasks: list[asyncio.Task[None]] = []
        if self._left:
            return tasks
        query = "SELECT type, unit_id, holder FROM units WHERE state != 'free'"
        for type_name, unit_id, holder in self._journal.ask(query):
            if hand_id in ("", holder) and having_units(self._types.get(type_name)):
                key = (type_name, unit_id)
                hand = self._journal.hand(holder)
                live = hand is not None and hand.state in ("provisioning", "live")
                # What is `resetting` had an earlier hand of that id, which is over.
                if live and self._row(key).state == "held":
                    continue
                tasks.append(self._goes_on(key) or self._begin(key, self._after(key, holder)))
        return tasks

    async def _after(self, key: _Key, hand_id: str) -> None:
        """Reset a unit after a hand, once that is dead; one that resists keeps it till released."""
        if self._row(key).state == "held":
            dead = await self._remains.reap(key[0], hand_id)
            if not dead and self._row(key).state == "held":
                log.warning("unit kept by what resists", extra={"unit": key, "hand_id": hand_id})
                return
            self._write("ending", key, Row(hand_id, "resetting"))
        if not await self._reset(key, hand_id):
            self._write("freed", key, Row())

    # Quarantine.

    def clear(self, unit_id: str, type_name: str = "") -> asyncio.Task[None]:
        """Begin to reset a quarantined unit; it is free again once that works. INVALID_FIELD."""
        found = [
            row["type"]
            for row in self.rows()
            if row["unit_id"] == unit_id and type_name in ("", row["type"])
        ]
        if not found:
            raise invalid("unit_id", f"no unit {unit_id!r} is here; `carpal hand units` lists them")
        if len(found) > 1:
            raise invalid("type", f"say of which type unit {unit_id!r} is: {', '.join(found)}")
        key = (found[0], unit_id)
        if task := self._goes_on(key):
            return task
        if not self._row(key).reason:
            raise invalid("unit_id", f"unit {unit_id!r} is not in quarantine")
        return self._begin(key, self._clear(key))

    async def _clear(self, key: _Key) -> None:
        if not await self._reset(key, ""):
            self._write("cleared", key, Row())
            log.info("unit out of quarantine", extra={"unit": key})

    # How.

    async def _reset(self, key: _Key, hand_id: str) -> str:
        """Have a unit reset; why it is quarantined now, or nothing."""
        problem = await self._try_to_reset(key)
        if problem:
            log.warning("unit quarantined", extra={"unit": key, "hand_id": hand_id, "why": problem})
            self._write("quarantined", key, Row(reason=problem))
        return problem

    async def _try_to_reset(self, key: _Key) -> str:
        kind = having_units(self._types.get(key[0]))
        if key in self._resets and not self._resets[key].done():
            return "a reset of it that was late still runs: restart the daemon if it never ends"
        if kind is None or self._is_gone(key):
            return _GONE
        point("daemon.unit.reset")
        reset = self._resets[key] = asyncio.create_task(_called(kind, key[1]))
        try:
            done, _ = await asyncio.wait({reset}, timeout=RESET_LIMIT)
        except asyncio.CancelledError:
            reset.cancel()
            raise
        if not done:
            reset.cancel()
            reset.add_done_callback(_tell)
            return f"its reset took longer than {RESET_LIMIT:g} s"
        if reset.cancelled():
            return "its reset was cancelled"
        if error := reset.exception():
            about = {"unit": key, "type": key[0], "why": str(error)}
            log.warning("reset failed", exc_info=_unforeseen(error), extra=about)
            return f"its reset failed: {error}" if str(error) else f"its reset failed: {error!r}"
        return ""

    def _is_gone(self, key: _Key) -> bool:
        try:
            return key[1] not in self.named(key[0])
        except UnitsUnknown:
            return False  # its reset tells

    def _begin(self, key: _Key, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks[key] = self._group.create_task(work)
        return task

    def _goes_on(self, key: _Key) -> asyncio.Task[None] | None:
        task = self._tasks.get(key)
        return None if task is None or task.done() else task

    def detach(self) -> None:
        """The daemon ends: what is not reset yet, the next one resets."""
        self._left = True
        for task in (*self._tasks.values(), *self._resets.values()):
            task.cancel()

    def _rows(self, type_name: str) -> dict[str, Row]:
        query = "SELECT unit_id, holder, state, reason FROM units WHERE type = ?"
        return {row[0]: Row(*row[1:]) for row in self._journal.ask(query, type_name)}

    def _row(self, key: _Key) -> Row:
        return self._rows(key[0]).get(key[1], Row())

    def _write(self, step: str, key: _Key, row: Row) -> None:
        write = "INSERT OR REPLACE INTO units VALUES (?, ?, ?, ?, ?)"
        self._journal.unit(step, (write, (*key, row.holder, row.state, row.reason)))


async def _called(kind: HasUnits, unit_id: str) -> None:
    await kind.reset(unit_id)


def _unforeseen(error: BaseException) -> BaseException | None:
    """What a traceback helps with; a ValueError is a type's own word on why, which is said."""
    return None if isinstance(error, ValueError) else error


def _tell(reset: asyncio.Task[None]) -> None:
    """How a late reset went after all: nobody waits for it."""
    if not reset.cancelled() and (error := reset.exception()):
        log.warning("late reset failed", exc_info=_unforeseen(error), extra={"why": str(error)})
