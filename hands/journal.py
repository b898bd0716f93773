"""The journal: what the daemon did, so that it never does it twice.

Each state is written before the thing it announces: a call is `accepted`
before it is answered or queued, `starting` before the hand is told, `running`
with its process, `terminal` before its result leaves, `acknowledged` before
its output is freed. It is written, not fsynced: it must survive the process;
the boot id covers the machine. Every change raises the sequence by one.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
        self.journal_id = self.note("journal_id")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @property
    def sequence(self) -> int:
        """Changes so far."""
        return int(self.note("sequence"))

    def note(self, name: str, otherwise: str = "") -> str:
        """A small fact kept beside the rest."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else otherwise

    def keep_note(self, name: str, value: str) -> None:
        """Keep a small fact."""
        with self._step("journal", "noted") as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    # Sessions.

    def epoch(self, session_id: str) -> int:
        """The highest epoch seen of a session; 0 before the first."""
        row = self._db.execute(
            "SELECT epoch FROM sessions WHERE session_id = ?", (session_id,)
        ).fetchone()
        return int(row[0]) if row else 0

    def raise_epoch(self, session_id: str, epoch: int) -> None:
        """Note a higher epoch."""
        with self._step("session", "epoch_raised") as db:
            db.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?)", (session_id, epoch))

    # Hands.

    def hand(self, hand_id: str) -> HandRow | None:
        """A hand's row, also of one released."""
        return next(self._hands("WHERE hand_id = ?", hand_id), None)

    def hands(self) -> list[HandRow]:
        """Every hand not released."""
        return list(self._hands("WHERE state != 'released'"))

    def sessions_of(self, hand_id: str) -> list[str]:
        """Sessions that hold a share."""
        rows = self._db.execute(
            "SELECT session_id FROM shares WHERE hand_id = ? ORDER BY 1", (hand_id,)
        )
        return [str(row[0]) for row in rows]

    def provisioning(self, row: HandRow, session_id: str) -> None:
        """A hand is about to be made."""
        with self._step("hand", "provisioning") as db:
            db.execute(
                "INSERT INTO hands (hand_id, state, type, workspace, digest, boot_id, provisioned,"
                " orphan_deadline) VALUES (?, 'provisioning', ?, ?, ?, ?, ?, ?)",
                (row.hand_id, row.type, row.workspace, row.digest, row.boot_id, row.provisioned,
                 row.orphan_deadline),
            )  # fmt: skip
            db.execute("INSERT OR IGNORE INTO shares VALUES (?, ?)", (row.hand_id, session_id))

    def provisioned(self, hand_id: str, facts: Mapping[str, Any], result: bytes) -> None:
        """It is there."""
        with self._step("hand", "provisioned") as db:
            db.execute(
                "UPDATE hands SET state = 'live', facts = ?, result = ? WHERE hand_id = ?",
                (json.dumps(dict(facts)), result, hand_id),
            )

    def not_provisioned(self, hand_id: str) -> None:
        """It could not be made; the id may be tried again."""
        with self._step("hand", "not_provisioned") as db:
            db.execute("DELETE FROM hands WHERE hand_id = ?", (hand_id,))
            db.execute("DELETE FROM shares WHERE hand_id = ?", (hand_id,))

    def lost(self, hand_id: str, reason: str) -> None:
        """It died."""
        with self._step("hand", "lost") as db:
            db.execute(
                "UPDATE hands SET state = 'lost', reason = ? WHERE hand_id = ?", (reason, hand_id)
            )

    def unshare(self, hand_id: str, session_id: str) -> None:
        """One session's share ended."""
        with self._step("hand", "unshared") as db:
            db.execute(
                "DELETE FROM shares WHERE hand_id = ? AND session_id = ?", (hand_id, session_id)
            )

    def released(self, hand_id: str) -> None:
        """It was ended; only its id stays, never to be used again."""
        with self._step("hand", "released") as db:
            db.execute(
                "UPDATE hands SET state = 'released', facts = '{}', result = NULL"
                " WHERE hand_id = ?",
                (hand_id,),
            )
            db.execute("DELETE FROM shares WHERE hand_id = ?", (hand_id,))
            db.execute("DELETE FROM calls WHERE hand_id = ?", (hand_id,))
            db.execute("DELETE FROM outputs WHERE hand_id = ?", (hand_id,))

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
        with self._step("call", "dropped") as db:
            db.execute("DELETE FROM calls WHERE hand_id = ? AND call_id = ?", (hand_id, call_id))

    def starting(self, hand_id: str, call_id: str) -> None:
        """The hand is about to be told."""
        self._set_call(hand_id, call_id, "starting")

    def running(self, hand_id: str, call_id: str, pid: int, start_time: int) -> None:
        """It runs as that process."""
        self._set_call(hand_id, call_id, "running", ", pid = ?, start_time = ?", pid, start_time)

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
        also = (keep, (hand_id, call_id, head, total)) if total else None
        change = ", outcome = ?, result = ?"
        self._set_call(hand_id, call_id, "terminal", change, outcome, result, also=also)

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
        also = (free, (hand_id, call_id))
        self._set_call(hand_id, call_id, "acknowledged", ", result = NULL", also=also)

    # How.

    def _new_call(self, hand_id: str, call_id: str, state: str, digest: bytes) -> None:
        with self._step("call", state) as db:
            db.execute(
                "INSERT INTO calls (hand_id, call_id, state, digest, accepted)"
                " SELECT ?, ?, ?, ?, value FROM meta WHERE name = 'sequence'",
                (hand_id, call_id, state, digest),
            )

    def _set_call(
        self,
        hand_id: str,
        call_id: str,
        state: str,
        more: str = "",
        *values: object,
        also: tuple[str, tuple[object, ...]] | None = None,
    ) -> None:
        before = _BEFORE[state]
        places = ", ".join("?" for _ in before)
        with self._step("call", state) as db:
            changed = db.execute(
                f"UPDATE calls SET state = ?{more} WHERE hand_id = ? AND call_id = ?"  # noqa: S608
                f" AND state IN ({places})",
                (state, *values, hand_id, call_id, *before),
            ).rowcount
            if not changed:
                known = self.call(hand_id, call_id)
                at = "unknown" if known is None else known.state
                raise OutOfOrder(f"call {call_id!r} is {at} and cannot be {state}")
            if also:
                db.execute(*also)

    @contextmanager
    def _step(self, thing: str, step: str) -> Iterator[sqlite3.Connection]:
        """One change and its sequence number, together; between two fault points."""
        point(f"daemon.{thing}.before_{step}")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("UPDATE meta SET value = value + 1 WHERE name = 'sequence'")
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        point(f"daemon.{thing}.{step}")

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
