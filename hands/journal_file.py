"""The journal's file: opened whole, ours and this daemon's, or not at all.

What is damaged is set aside and a new journal begun: it has another id, so
nobody believes "never accepted" of it, and the hands it does not know are
ended. A machine that lost its power comes back so without anybody's help. What
belongs to something else is refused, for somebody put it there.
"""

import logging
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from carpal.errors import CarpalError, refuse
from carpal.status import Reason

log = logging.getLogger(__name__)

APPLICATION_ID = 0x6372706A
"""`crpj`, in the file's header: this is a journal."""
VERSION = 2
"""Of the schema. In 1 a call's row did not have the number of its last step."""
_ROOM = 256 * 1024
"""Bytes that a disk has free at least, or counts as full: a journal is not begun in less."""
_AGAIN = "start the daemon again: its hands go on until their orphan deadline"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WITH_IT = ("-wal", "-shm")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
  session_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hands (
  hand_id TEXT PRIMARY KEY, state TEXT NOT NULL, type TEXT NOT NULL, workspace TEXT NOT NULL,
  digest BLOB NOT NULL, boot_id TEXT NOT NULL, provisioned REAL NOT NULL,
  orphan_deadline REAL NOT NULL, facts TEXT NOT NULL DEFAULT '{}', result BLOB,
  reason TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shares (
  hand_id TEXT NOT NULL, session_id TEXT NOT NULL,
  PRIMARY KEY (hand_id, session_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls (
  hand_id TEXT NOT NULL, call_id TEXT NOT NULL, state TEXT NOT NULL, digest BLOB NOT NULL,
  pid INTEGER NOT NULL DEFAULT 0, start_time INTEGER NOT NULL DEFAULT 0,
  outcome TEXT NOT NULL DEFAULT '', result BLOB, accepted INTEGER NOT NULL,
  sequence INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (hand_id, call_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS saves (
  hand_id TEXT NOT NULL, save_id TEXT NOT NULL, answer BLOB NOT NULL,
  PRIMARY KEY (hand_id, save_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unasked (
  number INTEGER PRIMARY KEY, hand_id TEXT NOT NULL, event_id TEXT NOT NULL, kind TEXT NOT NULL,
  data BLOB, time REAL NOT NULL, state TEXT NOT NULL, UNIQUE (hand_id, event_id));
CREATE TABLE IF NOT EXISTS units (
  type TEXT NOT NULL, unit_id TEXT NOT NULL, holder TEXT NOT NULL, state TEXT NOT NULL,
  reason TEXT NOT NULL, PRIMARY KEY (type, unit_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outputs (
  hand_id TEXT NOT NULL, call_id TEXT NOT NULL, head BLOB NOT NULL, total INTEGER NOT NULL,
  PRIMARY KEY (hand_id, call_id));
"""


def open_file(path: Path, daemon_id: str) -> sqlite3.Connection:
    """The journal of a daemon, made if there is none. CONFIG_INVALID when it is not to be had."""
    try:
        try:
            return _opened(path, daemon_id)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            aside = _set_aside(path)
            about = {"kept_as": str(aside), "why": str(error)}
            log.warning("the journal was damaged; its hands are ended", extra=about)
            return _opened(path, daemon_id)
    except (sqlite3.Error, OSError) as error:
        if _is_full(path.parent):
            raise _full(path) from None
        raise refuse(
            Reason.CONFIG_INVALID,
            f"the journal {path} cannot be opened: {error}",
            action="mend what is said, or move it away: hands it knew are then ended",
        ) from None


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether it says that the file is none, or not whole."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def check_file(db: sqlite3.Connection, path: Path) -> None:
    """That an open database is a journal that this daemon reads, and whole; changes nothing.

    CONFIG_INVALID for another program's or a newer version's; damage is raised as sqlite3 does.
    """
    _check_kind(db, path)
    _check_whole(db)


@contextmanager
def journal_errors(path: Path) -> Iterator[None]:
    """Say what to do when a journal that was opened fails, and so ends the daemon.

    STORE_FULL or INTERNAL. Nothing is lost by it but time: what could not be written was not
    done or not told, and the next start takes up what goes on.
    """
    try:
        yield
    except (sqlite3.Error, BaseExceptionGroup) as raised:
        error = _of_sqlite(raised)
        if error is None:
            raise
        if _is_full(path.parent) or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            raise _full(path) from error
        raise refuse(
            Reason.INTERNAL, f"the journal {path} failed: {error}", action=f"mend that and {_AGAIN}"
        ) from error


def _of_sqlite(raised: BaseException) -> sqlite3.Error | None:
    """The first failure of SQLite in an error, or in a group of nothing else."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised if isinstance(raised, sqlite3.Error) else None
    found = [_of_sqlite(one) for one in raised.exceptions]
    return found[0] if all(found) else None


def _is_full(folder: Path) -> bool:
    return folder.exists() and shutil.disk_usage(folder).free < _ROOM


def _full(path: Path) -> CarpalError:
    return refuse(
        Reason.STORE_FULL,
        f"the disk of the journal {path} is full",
        action=f"free some and {_AGAIN}",
    )


def _opened(path: Path, daemon_id: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        _check_kind(db, path)
        _check_whole(db)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")
        db.executescript(_SCHEMA)
        if "sequence" not in {column[1] for column in db.execute("PRAGMA table_info(calls)")}:
            db.execute("ALTER TABLE calls ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute(
            "INSERT OR IGNORE INTO meta VALUES ('journal_id', ?), ('sequence', '0')",
            (new_journal_id(),),
        )
        _check_copied(db, path)
        if daemon_id:
            _check_owner(db, path, daemon_id)
    except BaseException:
        db.close()
        raise
    return db


def new_journal_id() -> str:
    """An id that no journal had before."""
    return f"jrnl_{secrets.token_hex(13)}"


def _check_kind(db: sqlite3.Connection, path: Path) -> None:
    (kind,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    tables = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    if kind != APPLICATION_ID and (kind != 0 or (tables and "calls" not in tables)):
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} is the database of another program, not a daemon's journal",
            action="move it away, or give the daemon a state folder of its own",
        )
    if version > VERSION:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"the journal {path} is of version {version}; this daemon knows {VERSION}",
            action="install the newer version again",
        )


def _check_whole(db: sqlite3.Connection) -> None:
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        damaged = sqlite3.DatabaseError(str(found))
        damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damaged


def _check_copied(db: sqlite3.Connection, path: Path) -> None:
    """A copy is a journal of its own: two of one id would each tell what the other one did not do.

    By the file's number, which a copy on the same disk never has, nor one that was put back.
    """
    here = str(path.stat().st_ino)
    row = db.execute("SELECT value FROM meta WHERE name = 'file'").fetchone()
    if row is not None and row[0] != here:
        log.warning("the journal is a copy, and counts as a new one", extra={"file": str(path)})
        db.execute("UPDATE meta SET value = ? WHERE name = 'journal_id'", (new_journal_id(),))
    db.execute("INSERT OR REPLACE INTO meta VALUES ('file', ?)", (here,))


def _check_owner(db: sqlite3.Connection, path: Path, daemon_id: str) -> None:
    """Hands of another daemon would never be released: brains ask for them by its name."""
    row = db.execute("SELECT value FROM meta WHERE name = 'daemon_id'").fetchone()
    if row is not None and row[0] != daemon_id:
        live = db.execute("SELECT count(*) FROM hands WHERE state != 'released'").fetchone()[0]
        if live:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"the journal {path} is daemon {row[0]!r}'s, with {live} hands; this is"
                f" {daemon_id!r}",
                action="move it away: the hands it knew are then ended",
            )
        db.execute("UPDATE meta SET value = ? WHERE name = 'journal_id'", (new_journal_id(),))
    db.execute("INSERT OR REPLACE INTO meta VALUES ('daemon_id', ?)", (daemon_id,))


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    for suffix in ("", *_WITH_IT):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside
