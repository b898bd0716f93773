"""Copies of the store: taken while it is served, and put back so that nobody drives on.

A copy is one moment of the store: SQLite copies it inside one read transaction, beside
which the writer goes on. It counts once it is checked, synced and under its name.
"""

import os
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from sessiond.sql.fence import Fenced, fence, generation
from sessiond.sqlite.connection import RESERVED, SqliteConnection, open_raw, sqlite_errors
from sessiond.sqlite.file import (
    check_file,
    check_whole,
    frames_of,
    keep_as_found,
    refusal,
    sync_folder,
)
from sessiond.sqlite.lock import StoreLock
from sessiond.sqlite.part import part_of
from sessiond.store import StoreBroken, StoreFull


class Copied(NamedTuple):
    """A backup that was taken."""

    bytes: int
    seconds: float


class Restored(NamedTuple):
    """A restore that was done."""

    fenced: Fenced
    aside: Path | None
    """Where the store is now that was there before."""


def backup(store: Path, to: Path) -> Copied:
    """Copy the store to a new file, of this user alone; refuses one that is there.

    A single file in SQLite's format, without a write-ahead log.
    """
    began = time.monotonic()
    if not store.is_file():
        raise refuse(
            Reason.CONFIG_INVALID, f"there is no store at {store}", action="name its --state-dir"
        )
    if to.exists():
        raise _is_there(to)
    if (lock := StoreLock.if_free(store)) is not None:
        # Nobody serves it, so nobody has looked whether its write-ahead log is whole.
        with closing(lock):
            _check_log(store, lock)
    with part_of(to) as part:
        _copy(store, part, name=to)
        size = part.stat().st_size
        try:
            os.link(part, to)
        except FileExistsError:
            raise _is_there(to) from None
    sync_folder(to.parent)
    return Copied(size, time.monotonic() - began)


def restore(store: Path, source: Path, wall: int, *, replace: bool) -> Restored:
    """Put a backup in the store's place and fence; what was there is moved aside.

    Refused while a sessiond has the store, and when one is there without `replace`. Cut
    short at any moment it leaves the old store, the new one, or a refusal to start.
    """
    if not source.is_file():
        raise refuse(
            Reason.CONFIG_INVALID, f"there is no file {source}", action="name a backup by --from"
        )
    with closing(StoreLock(store)) as lock, part_of(store) as part:
        if store.exists() and not replace:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"there is a store at {store}",
                action="add --replace to move it aside, or choose another --state-dir",
            )
        _copy(source, part, name=source)
        fenced = _fence(part, wall, _generation_of(store))
        aside = _move_aside(store, lock, wall)
        part.replace(store)
        sync_folder(store.parent)
        lock.nothing_noted()
    return Restored(fenced, aside)


def _copy(source: Path, to: Path, name: Path) -> None:
    """Copy a store to an empty file and look it over; `name` is what is said to be damaged."""
    try:
        check_file(source)
        with closing(SqliteConnection(str(source), read_only=True)) as old:
            check_file(source, old)
            with closing(open_raw(str(to))) as raw, sqlite_errors(raw):
                # Its first page says that pages have checksums, so it has to be there.
                raw.reserve_bytes("main", RESERVED)
                raw.execute(
                    f"PRAGMA page_size = {old.raw.pragma('page_size')};"
                    "PRAGMA synchronous = OFF; PRAGMA user_version = 1"  # synced below, once
                ).fetchall()
                with raw.backup("main", old.raw, "main") as copying:
                    copying.step(-1)
                raw.execute("PRAGMA journal_mode = DELETE").fetchall()
        with closing(SqliteConnection(str(to), read_only=True)) as new:
            check_whole(to, new, name=name)
    except StoreFull as error:
        raise refusal(to.parent, error) from None
    except StoreBroken as error:
        raise refusal(source, error) from None
    _sync(to)


def _fence(part: Path, wall: int, at_least: int) -> Fenced:
    try:
        with closing(SqliteConnection(str(part))) as connection:
            fenced = fence(connection, wall, at_least)
            with sqlite_errors(connection.raw):
                connection.raw.execute("PRAGMA journal_mode = WAL").fetchall()
    except (StoreBroken, StoreFull) as error:
        raise refusal(part.parent, error) from None
    _sync(part)
    return fenced


def _generation_of(store: Path) -> int:
    """Of the store that is replaced; 0 when there is none, or it cannot say."""
    if not store.exists():
        return 0
    try:
        check_file(store)
        with closing(SqliteConnection(str(store), read_only=True)) as connection:
            return generation(connection)
    except (CarpalError, StoreBroken, StoreFull):
        return 0  # the time alone is beyond what it ever was


def _move_aside(store: Path, lock: StoreLock, wall: int) -> Path | None:
    """Give the old store another name, with its write-ahead log, which is a part of it."""
    if not store.exists():
        return None
    stamp = datetime.fromtimestamp(wall / 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%S")
    aside = store.with_name(f"{store.name}.replaced-{stamp}")
    count = 1
    while aside.exists():
        count += 1
        aside = store.with_name(f"{store.name}.replaced-{stamp}-{count}")
    # From here until the new one is in place, there is no store that could be served.
    lock.nothing_noted(cut_short=True)
    wal = store.with_name(store.name + "-wal")
    if wal.exists():
        wal.rename(aside.with_name(aside.name + "-wal"))
    store.with_name(store.name + "-shm").unlink(missing_ok=True)
    store.rename(aside)
    sync_folder(store.parent)
    return aside


def _check_log(store: Path, lock: StoreLock) -> None:
    try:
        connection = SqliteConnection(str(store), read_only=True)
        try:
            lock.check(frames_of(connection))
        finally:
            keep_as_found(connection)
    except (StoreBroken, StoreFull) as error:
        raise refusal(store, error) from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_there(to: Path) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, f"{to} is there already", action="choose another --to")
