"""The journal: what the daemon did, so that it never does it twice.

Each state is written before the thing it announces: a call is `accepted`
before it is answered or queued, `starting` before the hand is told, `running`
with its process, `terminal` before its result leaves, `acknowledged` before
its output is freed. A call that need not wait is `starting` at once. It is
written, not fsynced: it must survive the process; the boot id covers the
machine. Every change raises the sequence by one; a call's row has the number
of its last step, and `meta` that of the last other change.

One daemon writes it, so what each call asks for is remembered as well: hands,
who shares them, and epochs, until any of them changes.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carpal.fault_points import point
from hands.journal_file import open_file

_BEFORE = {
    "starting": ("accepted",),
    # Again when an adopted hand tells it anew.
    "running": ("starting", "running"),
    "terminal": ("accepted", "starting", "running"),
    "acknowledged": ("terminal",),
}
"""State of a call → those it may follow. Any other step is a fault of ours and is not written."""

OPEN = ("accepted", "starting", "running")
"""States of a call that has no result."""


_UNIT_ENDING = "UPDATE units SET state = 'resetting' WHERE holder = ? AND state = 'held'"
"""A hand is over: the unit it had is to be reset before anybody has it again."""

Statement = tuple[str, tuple[object, ...]]
"""SQL, and the values of its places."""


@dataclass(frozen=True, slots=True)
class HandRow:
    """A hand's row. `state` is provisioning, live, lost or released."""

    hand_id: str
    state: str
    type: str
    workspace: str
    digest: bytes
    boot_id: str
    provisioned: float
    orphan_deadline: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the hand type needs to adopt it."""
    result: bytes = b""
    """The serialized ProvisionResult."""
    reason: str = ""
    """Why it is lost."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call's row. `state` is accepted, starting, running, terminal, acknowledged, tombstone."""

    hand_id: str
    call_id: str
    state: str
    digest: bytes
    pid: int
    start_time: int
    outcome: str
    result: bytes | None
    """The serialized Result; None before there is one, and once it is freed."""


class OutOfOrder(Exception):
    """A step that may not follow the state a call is in; says both."""


class Journal:
    """One daemon's journal, in one SQLite file."""

    def __init__(self, path: Path, daemon_id: str = "") -> None:
        """Open or begin it. CONFIG_INVALID when it is not to be had, or not `daemon_id`'s."""
        self._db = open_file(path, daemon_id)
        self._files = [path, path.with_name(f"{path.name}-wal")]
        self.journal_id = self.note("journal_id")
        (last,) = self._db.execute("SELECT max(sequence) FROM calls").fetchone()
        self.sequence = max(int(self.note("sequence")), last or 0)
        """Changes so far."""
        self.told: Callable[..., None] = lambda _step, **_facts: None
        """Is told of what became of hands, calls and saves, once that is written: the audit."""
        self._hand_rows: dict[str, HandRow] = {}
        self._shares: dict[str, list[str]] = {}
        self._epochs: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes it takes on the disk."""
        return sum(each.stat().st_size for each in self._files if each.exists())

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def note(self, name: str, otherwise: str = "") -> str:
        """A small fact kept beside the rest."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else otherwise

    def keep_note(self, name: str, value: str) -> None:
        """Keep a small fact."""
        note = ("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
        self._change("journal", "noted", note)

    # Sessions.

    def epoch(self, session_id: str) -> int:
        """The highest epoch seen of a session; 0 before the first."""
        if session_id not in self._epochs:
            row = self._db.execute(
                "SELECT epoch FROM sessions WHERE session_id = ?", (session_id,)
            ).fetchone()
            if row is None:
                return 0
            self._epochs[session_id] = int(row[0])
        return self._epochs[session_id]

    def raise_epoch(self, session_id: str, epoch: int) -> None:
        """Note a higher epoch."""
        raised = ("INSERT OR REPLACE INTO sessions VALUES (?, ?)", (session_id, epoch))
        self._change("session", "epoch_raised", raised)

    # Hands.

    def hand(self, hand_id: str) -> HandRow | None:
        """A hand's row, also of one released."""
        if hand_id not in self._hand_rows:
            row = next(self._hands("WHERE hand_id = ?", hand_id), None)
            if row is None:
                return None
            self._hand_rows[hand_id] = row
        return self._hand_rows[hand_id]

    def hands(self) -> list[HandRow]:
        """Every hand not released."""
        return list(self._hands("WHERE state != 'released'"))

    def sessions_of(self, hand_id: str) -> list[str]:
        """Sessions that hold a share."""
        if hand_id not in self._shares:
            rows = self._db.execute(
                "SELECT session_id FROM shares WHERE hand_id = ? ORDER BY 1", (hand_id,)
            )
            shares = [str(row[0]) for row in rows]
            if not shares:
                return shares
            self._shares[hand_id] = shares
        return self._shares[hand_id]

    def provisioning(self, row: HandRow, session_id: str, unit_id: str = "") -> None:
        """A hand is about to be made; of its type's units it has that one from here on."""
        made = (
            "INSERT INTO hands (hand_id, state, type, workspace, digest, boot_id, provisioned,"
            " orphan_deadline) VALUES (?, 'provisioning', ?, ?, ?, ?, ?, ?)",
            (row.hand_id, row.type, row.workspace, row.digest, row.boot_id, row.provisioned,
             row.orphan_deadline),
        )  # fmt: skip
        share = ("INSERT OR IGNORE INTO shares VALUES (?, ?)", (row.hand_id, session_id))
        held = "INSERT OR REPLACE INTO units VALUES (?, ?, ?, 'held', '')"
        unit = [(held, (row.type, unit_id, row.hand_id))] if unit_id else []
        self._change("hand", "provisioning", made, share, *unit)

    def provisioned(self, hand_id: str, facts: Mapping[str, Any], result: bytes) -> None:
        """It is there."""
        live = (
            "UPDATE hands SET state = 'live', facts = ?, result = ? WHERE hand_id = ?",
            (json.dumps(dict(facts)), result, hand_id),
        )
        self._change("hand", "provisioned", live)
        self.told("provisioned", hand=hand_id)

    def not_provisioned(self, hand_id: str) -> None:
        """It could not be made; the id may be tried again."""
        gone = [
            f"DELETE FROM {table} WHERE hand_id = ?"  # noqa: S608 - our own words only
            for table in ("hands", "shares", "unasked")
        ]
        statements = (*gone, _UNIT_ENDING)
        self._change("hand", "not_provisioned", *((each, (hand_id,)) for each in statements))
        self.told("not_provisioned", hand=hand_id)

    def lost(self, hand_id: str, reason: str) -> None:
        """It died."""
        died = ("UPDATE hands SET state = 'lost', reason = ? WHERE hand_id = ?", (reason, hand_id))
        self._change("hand", "lost", died)
        self.told("lost", hand=hand_id)

    def unshare(self, hand_id: str, session_id: str) -> None:
        """One session's share ended."""
        ended = (
            "DELETE FROM shares WHERE hand_id = ? AND session_id = ?",
            (hand_id, session_id),
        )
        self._change("hand", "unshared", ended)

    def released(self, hand_id: str) -> None:
        """It was ended; only its id stays, never to be used again."""
        ended = "UPDATE hands SET state = 'released', facts = '{}', result = NULL WHERE hand_id = ?"
        gone = [
            f"DELETE FROM {table} WHERE hand_id = ?"  # noqa: S608 - our own words only
            for table in ("shares", "calls", "outputs", "saves", "unasked")
        ]
        statements = (ended, *gone, _UNIT_ENDING)
        self._change("hand", "released", *((each, (hand_id,)) for each in statements))
        self.told("released", hand=hand_id)

    def saved(self, hand_id: str, save_id: str) -> bytes | None:
        """What was answered to a save."""
        row = self._db.execute(
            "SELECT answer FROM saves WHERE hand_id = ? AND save_id = ?", (hand_id, save_id)
        ).fetchone()
        return bytes(row[0]) if row else None

    def keep_saved(self, hand_id: str, save_id: str, answer: bytes) -> None:
        """A save is done; the answer stays until the hand is released."""
        kept = ("INSERT OR REPLACE INTO saves VALUES (?, ?, ?)", (hand_id, save_id, answer))
        self._change("hand", "saved", kept)
        self.told("saved", hand=hand_id, save=save_id, answer=answer)

    # Calls.

    def call(self, hand_id: str, call_id: str) -> CallRow | None:
        """A call's row."""
        return next(self._calls("WHERE hand_id = ? AND call_id = ?", hand_id, call_id), None)

    def open_calls(self, hand_id: str) -> list[CallRow]:
        """Calls without a result, in the order they were accepted."""
        states = ", ".join(f"'{state}'" for state in OPEN)
        where = f"WHERE hand_id = ? AND state IN ({states}) ORDER BY accepted"
        return list(self._calls(where, hand_id))

    def ended_calls(self, hand_id: str) -> list[str]:
        """Calls with a result that no driver acknowledged, in the order they were accepted."""
        rows = self._calls("WHERE hand_id = ? AND state = 'terminal' ORDER BY accepted", hand_id)
        return [row.call_id for row in rows]

    @property
    def unsettled(self) -> int:
        """Calls that are open or not acknowledged, and hands that are lost."""
        states = ", ".join(f"'{state}'" for state in (*OPEN, "terminal"))
        (calls,) = self._db.execute(
            f"SELECT count(*) FROM calls WHERE state IN ({states})"  # noqa: S608 - ours
        ).fetchone()
        (lost,) = self._db.execute("SELECT count(*) FROM hands WHERE state = 'lost'").fetchone()
        return int(calls) + int(lost)

    def accepted(self, hand_id: str, call_id: str, digest: bytes) -> None:
        """It waits in line."""
        self._new_call(hand_id, call_id, "accepted", digest)

    def tombstone(self, hand_id: str, call_id: str) -> None:
        """It was cancelled before it came."""
        self._new_call(hand_id, call_id, "tombstone", b"")

    def dropped(self, hand_id: str, call_id: str) -> None:
        """It waited in line when the daemon died: it was never accepted."""
        gone = ("DELETE FROM calls WHERE hand_id = ? AND call_id = ?", (hand_id, call_id))
        self._change("call", "dropped", gone)

    def starting(self, hand_id: str, call_id: str, digest: bytes | None = None) -> None:
        """The hand is about to be told; with `digest`, of a call that did not wait in line."""
        if digest is None:
            self._set_call(hand_id, call_id, "starting")
        else:
            self._new_call(hand_id, call_id, "starting", digest)

    def running(self, hand_id: str, call_id: str, pid: int, start_time: int) -> None:
        """It runs as that process."""
        self._set_call(hand_id, call_id, "running", "pid = ?, start_time = ?, ", pid, start_time)

    def terminal(
        self,
        hand_id: str,
        call_id: str,
        outcome: str,
        result: bytes,
        *,
        head: bytes = b"",
        total: int = 0,
    ) -> None:
        """It has a result; `head` is the beginning of the `total` bytes of output it gave."""
        keep = "INSERT OR REPLACE INTO outputs VALUES (?, ?, ?, ?)"
        also = [(keep, (hand_id, call_id, head, total))] if total else []
        change = "outcome = ?, result = ?, "
        self._set_call(hand_id, call_id, "terminal", change, outcome, result, also=also)
        self.told("ended", hand=hand_id, call=call_id, outcome=outcome, result=result)

    def output(self, hand_id: str, call_id: str) -> tuple[bytes, int]:
        """The beginning of what a call gave, and how much that was; until it is acknowledged."""
        row = self._db.execute(
            "SELECT head, total FROM outputs WHERE hand_id = ? AND call_id = ?", (hand_id, call_id)
        ).fetchone()
        return (bytes(row[0]), int(row[1])) if row else (b"", 0)

    def unacknowledged(self, hand_id: str) -> frozenset[str]:
        """Calls whose output may still be asked for."""
        rows = self._db.execute(
            "SELECT call_id FROM calls WHERE hand_id = ?"
            " AND state NOT IN ('acknowledged', 'tombstone')",
            (hand_id,),
        )
        return frozenset(str(row[0]) for row in rows)

    def acknowledged(self, hand_id: str, call_id: str) -> None:
        """The result is in the log: it is freed; id, digest and outcome stay."""
        free = "DELETE FROM outputs WHERE hand_id = ? AND call_id = ?"
        also = [(free, (hand_id, call_id))]
        self._set_call(hand_id, call_id, "acknowledged", "result = NULL, ", also=also)

    # What hands say unasked: `hands/unasked.py` has the words of it.

    def unasked(self, step: str, *statements: Statement) -> None:
        """A step of an event."""
        self._change("event", step, *statements)

    # Units of hand types: `hands/life/units.py` has the words of it.

    def unit(self, step: str, *statements: Statement) -> None:
        """A step of a unit."""
        self._change("unit", step, *statements)

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return self._db.execute(query, values).fetchall()

    # How.

    def _new_call(self, hand_id: str, call_id: str, state: str, digest: bytes) -> None:
        number = self.sequence + 1
        new = (
            "INSERT INTO calls (hand_id, call_id, state, digest, accepted, sequence)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (hand_id, call_id, state, digest, number, number),
        )
        self._write("call", state, new)

    def _set_call(
        self,
        hand_id: str,
        call_id: str,
        state: str,
        more: str = "",
        *values: object,
        also: Sequence[Statement] = (),
    ) -> None:
        before = _BEFORE[state]
        places = ", ".join("?" for _ in before)
        step = (
            f"UPDATE calls SET {more}state = ?, sequence = ?"  # noqa: S608 - our own words only
            f" WHERE hand_id = ? AND call_id = ? AND state IN ({places})",
            (*values, state, self.sequence + 1, hand_id, call_id, *before),
        )
        if not self._write("call", state, step, *also):
            known = self.call(hand_id, call_id)
            at = "unknown" if known is None else known.state
            raise OutOfOrder(f"call {call_id!r} is {at} and cannot be {state}")

    def _change(self, thing: str, step: str, *statements: Statement) -> None:
        """A step that leaves no call's row to have its number."""
        number = ("UPDATE meta SET value = ? WHERE name = 'sequence'", (str(self.sequence + 1),))
        self._write(thing, step, number, *statements)
        for remembered in (self._hand_rows, self._shares, self._epochs):
            remembered.clear()

    def _write(self, thing: str, step: str, *statements: Statement) -> bool:
        """One step, between two fault points; not made when the first statement changes no row."""
        point(f"daemon.{thing}.before_{step}")
        execute = self._db.execute
        if len(statements) == 1:  # whole by itself
            made = execute(*statements[0]).rowcount > 0
        else:
            execute("BEGIN IMMEDIATE")
            try:
                made = execute(*statements[0]).rowcount > 0
                for each in statements[1:] if made else ():
                    execute(*each)
            except BaseException:
                if self._db.in_transaction:  # on a full disk SQLite rolls back itself
                    execute("ROLLBACK")
                raise
            execute("COMMIT")
        if made:
            self.sequence += 1
            point(f"daemon.{thing}.{step}")
        return made

    def _hands(self, where: str, *values: object) -> Iterator[HandRow]:
        columns = (
            "hand_id, state, type, workspace, digest, boot_id, provisioned, orphan_deadline,"
            " facts, result, reason"
        )
        query = f"SELECT {columns} FROM hands {where}"  # noqa: S608 - our own words only
        for row in self._db.execute(query, values).fetchall():
            fields = (*row[:8], json.loads(row[8]), row[9] or b"", row[10])
            yield HandRow(*fields)

    def _calls(self, where: str, *values: object) -> Iterator[CallRow]:
        columns = "hand_id, call_id, state, digest, pid, start_time, outcome, result"
        query = f"SELECT {columns} FROM calls {where}"  # noqa: S608 - our own words only
        for row in self._db.execute(query, values).fetchall():
            yield CallRow(*row)
