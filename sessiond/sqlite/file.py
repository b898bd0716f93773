"""Opening the file: made whole or not at all, and looked over before anything is served.

What is damaged, foreign or newer is refused in words, and left as it was found.
"""

import logging
import os
import time
from pathlib import Path

import apsw

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from sessiond.sql.check import check_logs
from sessiond.sql.schema import VERSION
from sessiond.sqlite.connection import RESERVED, SqliteConnection, open_raw, sqlite_errors
from sessiond.sqlite.lock import StoreLock, damaged
from sessiond.sqlite.schema import APPLICATION_ID, SCHEMA
from sessiond.store import StoreBroken, StoreCorrupt, StoreFull

_log = logging.getLogger(__name__)

PAGE_BYTES = 8192
"""Seven events of 1 KB, where 4096 has three: a commit of many writes half as many pages."""
CHECK_SECONDS = 60.0
"""For looking over the whole file at a start, at some 0.3 GB a second. What is left is
checked page by page as it is read, like all the rest."""

_READ_BYTES = 4 * 1024 * 1024
_MAGIC = b"SQLite format 3\0"
# recursive_triggers: or INSERT OR REPLACE would remove rows past the triggers.
# secure_delete: what was redacted or deleted is overwritten, not only unlinked.
_SETTINGS = (
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;"
    "PRAGMA recursive_triggers = ON; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON"
)


def open_store(path: Path, lock: StoreLock) -> SqliteConnection:
    """Open the store, or make it; CONFIG_INVALID, DATA_CORRUPT or STORE_FULL, naming the file."""
    lock.check_restored()
    try:
        if not path.exists():
            lock.check_never_there()
            _create(path)
            lock.nothing_noted()
        check_file(path)
        connection = SqliteConnection(str(path))
        try:
            path.chmod(0o600)
            lock.check(frames_of(connection))
            check_file(path, connection)
            with sqlite_errors(connection.raw):
                connection.raw.execute(_SETTINGS).fetchall()
                if _is_cut(path):
                    connection.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            if _is_cut(path):
                raise damaged(path, "its last page is cut short")
            check_whole(path, connection)
        except BaseException:
            keep_as_found(connection)
            raise
        keep_as_found(connection)
        return _held(path)
    except (StoreBroken, StoreFull) as error:
        raise refusal(path, error) from None


def _held(path: Path) -> SqliteConnection:
    """A connection by which the system knows that the file is in use.

    SQLite's locks on a file go when the process closes any descriptor of it, as looking it over
    does; and SQLite takes none while it believes it has one. Then whoever else opens the
    file, if only to look, believes at the end to be the last, and removes the write-ahead log.
    """
    connection = SqliteConnection(str(path))
    try:
        with sqlite_errors(connection.raw):
            connection.raw.execute(_SETTINGS).fetchall()
            connection.raw.pragma("schema_version")  # reads, and so locks
    except BaseException:
        keep_as_found(connection)
        raise
    return connection


def frames_of(connection: SqliteConnection) -> int:
    """How many frames of the write-ahead log SQLite found whole; it passes over the rest."""
    with sqlite_errors(connection.raw):
        connection.raw.pragma("schema_version")  # finds out
        frames, _ = connection.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return frames


def keep_as_found(connection: SqliteConnection) -> None:
    """Close, but do not copy the write-ahead log back and remove it, as closing does."""
    connection.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()


def check_whole(path: Path, connection: SqliteConnection, name: Path | None = None) -> None:
    """DATA_CORRUPT unless every page is what was written, and every log is found whole.

    `name` is the file to blame, when it is not this one.
    """
    began = time.monotonic()
    raw = connection.raw
    try:
        _read_ahead(path, until=began + CHECK_SECONDS / 2)
    except OSError as error:
        raise damaged(name or path, f"it cannot be read: {error.strerror}") from None
    raw.set_progress_handler(lambda: time.monotonic() - began > CHECK_SECONDS, 100_000)
    try:
        with sqlite_errors(raw):
            said = raw.execute("PRAGMA quick_check(1)").fetchall()
            wrong = "" if said == [("ok",)] else str(said[0][0])
        wrong = wrong or check_logs(connection)
    except StoreBroken as error:
        if not isinstance(error.__cause__, apsw.InterruptError):
            raise
        _log.warning(
            "not all of the store was looked over; the rest is checked as it is read",
            extra={"file": str(path), "seconds": CHECK_SECONDS},
        )
        return
    finally:
        raw.set_progress_handler(None)
    if wrong:
        raise damaged(name or path, " ".join(wrong.split()))
    _log.info(
        "the store is whole",
        extra={
            "file": str(path),
            "bytes": path.stat().st_size,
            "seconds": round(time.monotonic() - began, 3),
        },
    )


def _read_ahead(path: Path, until: float) -> None:
    """Bring the file into the system's cache: in order that is ten times faster than by pages."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if path.stat().st_size > memory // 2:
        return  # what comes last would push out what came first
    with path.open("rb", buffering=0) as file:
        while time.monotonic() < until and file.read(_READ_BYTES):
            pass


def refusal(path: Path, error: StoreBroken | StoreFull) -> CarpalError:
    """What a person is told when the store cannot be opened or goes on no more."""
    if isinstance(error, StoreFull):
        return refuse(
            Reason.STORE_FULL,
            f"the disk that holds {path} is full",
            action="free some space, then start again",
        )
    if isinstance(error, StoreCorrupt):
        said = str(error.__cause__ or error)
        # SQLite's own word for what the checksums found.
        return damaged(path, "a page is not what was written" if "not an error" in said else said)
    return refuse(
        Reason.CONFIG_INVALID,
        f"{path} cannot be opened: {error}",
        action="check the folder's owner, and that its disk has room",
    )


def sync_folder(folder: Path) -> None:
    """Make renames in it durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create(path: Path) -> None:
    """Under another name until it is whole: an empty file is never taken for a new store."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        raise damaged(path, f"it is missing, and {wal.name} is there")
    new = path.with_name(path.name + ".new")
    for name in (new, new.with_name(new.name + "-wal"), new.with_name(new.name + "-shm")):
        name.unlink(missing_ok=True)
    raw = open_raw(str(new), create=True)
    try:
        with sqlite_errors(raw):
            raw.reserve_bytes("main", RESERVED)
            raw.execute(
                f"PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL;"
                f"PRAGMA synchronous = FULL; BEGIN IMMEDIATE; {SCHEMA}"
                f"PRAGMA application_id = {APPLICATION_ID};"
                f"PRAGMA user_version = {VERSION}; COMMIT"
            ).fetchall()
            raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        raw.close()
    new.chmod(0o600)
    new.rename(path)
    sync_folder(path.parent)


def check_file(path: Path, connection: SqliteConnection | None = None) -> None:
    """CONFIG_INVALID or DATA_CORRUPT unless it is a store of ours, of this version.

    Without a connection by its first bytes alone, before SQLite looks: from them it learns
    whether pages have checksums at all.
    """
    if connection is not None:
        with sqlite_errors(connection.raw):
            _check_version(path, connection.raw.pragma("user_version"))
        return
    header = _header(path)
    if not header:
        raise damaged(path, "it is empty")
    if header[:16] != _MAGIC or int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} is not a session store",
            action="choose another file, or restore a backup: `carpal sessiond restore`",
        )
    if header[20] != RESERVED:
        raise damaged(path, "its pages have no checksums")
    if _is_cut(path) and not _has_log(path):
        raise damaged(path, "its last page is cut short")


def _header(path: Path) -> bytes:
    try:
        if path.is_file():  # a pipe would be waited for
            with path.open("rb") as file:
                return file.read(100)
    except OSError as error:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} cannot be read: {error.strerror}",
            action="check that it is the right file, and its owner",
        ) from None
    raise refuse(Reason.CONFIG_INVALID, f"{path} is no file", action="choose another")


def _is_cut(path: Path) -> bool:
    """Whether the file ends inside a page, whose rest SQLite would take for zeros, unchecked."""
    with path.open("rb") as file:
        page = int.from_bytes(file.read(18)[16:], "big")
        return page > 0 and os.fstat(file.fileno()).st_size % page != 0


def _has_log(path: Path) -> bool:
    """Whether a write-ahead log may still complete the file, as after a kill in the middle."""
    wal = path.with_name(path.name + "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _check_version(path: Path, version: int) -> None:
    if version > VERSION:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} was written by a newer sessiond (schema {version}, this one knows {VERSION})",
            action="run the newer sessiond",
        )
    if version < VERSION:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{path} was written by a sessiond before the first release (schema {version})",
            action="choose another --state-dir",
        )
