"""The journal, looked at and left as it is."""

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from carpal.errors import CarpalError
from hands.doctor.rows import Row, fail, ok, refused, skip
from hands.doctor.subject import Subject
from hands.journal_file import check_file, is_damage


@dataclass(frozen=True)
class Summary:
    """What there is in a journal, in numbers: nothing that was said in a call, nor by whom."""

    journal_id: str
    version: int
    size: int
    """Bytes, its log of changes included."""
    sequence: int
    sessions: int
    hands: dict[str, int] = field(default_factory=dict)
    """By type and state."""
    calls: dict[str, int] = field(default_factory=dict)
    """By state, and outcome where there is one."""


def look(subject: Subject) -> list[Row]:
    """Whether it is whole, and one that this daemon reads."""
    path = subject.files.journal
    if not path.exists():
        return [skip("journal", "there is none yet: the daemon begins it")]
    try:
        found = summary(path)
    except CarpalError as error:
        return [refused("journal", error)]
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        action = (
            "restart the daemon: it sets this journal aside, ends the hands that are in it, whose "
            "open calls are `interrupted`, and begins a new one. Look for what damages the disk"
        )
        return [fail("journal", f"{path} is damaged: {error}", action)]
    hands = sum(number for what, number in found.hands.items() if not what.endswith(" released"))
    return [ok("journal", f"whole; {hands} hands, {sum(found.calls.values())} calls")]


def summary(path: Path) -> Summary:
    """A journal in numbers. Raises CarpalError, sqlite3.Error; OSError where there is none."""
    size = sum(part.stat().st_size for part in _parts(path))
    with closing(sqlite3.connect(_uri(path), uri=True, isolation_level=None, timeout=5.0)) as db:
        check_file(db, path)
        meta = dict(db.execute("SELECT name, value FROM meta").fetchall())
        hands = Counter(
            f"{kind} {state}" for kind, state in db.execute("SELECT type, state FROM hands")
        )
        calls = Counter(
            f"{state} {outcome}".strip()
            for state, outcome in db.execute("SELECT state, outcome FROM calls")
        )
        (sessions,) = db.execute("SELECT count(*) FROM sessions").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
    return Summary(
        journal_id=str(meta.get("journal_id", "")),
        version=version,
        size=size,
        sequence=int(meta.get("sequence", 0)),
        sessions=sessions,
        hands=dict(sorted(hands.items())),
        calls=dict(sorted(calls.items())),
    )


def _parts(path: Path) -> list[Path]:
    named = (path.with_name(path.name + end) for end in ("", "-wal"))
    return [part for part in named if part.exists()]


def _uri(path: Path) -> str:
    """To be read only. Without a log of changes nothing beside it is needed, nor made."""
    wal = path.with_name(f"{path.name}-wal")
    quiet = not wal.exists() or wal.stat().st_size == 0
    return f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if quiet else ''}"
