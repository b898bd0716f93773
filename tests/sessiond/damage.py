"""Damage to a store, at random: it is refused by name, or every read is true or refused."""

import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError
from carpal.status import Reason
from sessiond.rows import SliceQuery
from sessiond.sqlite.store import SqliteStore
from sessiond.store import Reader, StoreCorrupt
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message, reply

TYPED = {Reason.DATA_CORRUPT, Reason.CONFIG_INVALID}
SESSIONS = ("sesn_1", "sesn_2", "sesn_3")
Read = Callable[[Reader], Any]


def small_store(folder: Path) -> SqliteStore:
    """An open store, part in its file and part in its write-ahead log."""
    clock = FakeClock()
    store = SqliteStore(folder / "sessions.db", clock)
    desk = Desk(store, clock)
    for session_id in SESSIONS:
        first = (message(f"{session_id}-{n}", b"%d" % n * 300) for n in range(12))
        desk.create(session_id, *first, wake=session_id != "sesn_2")
    desk.acquire("daemon/d1", workspace="default")
    store.close()
    store = SqliteStore(folder / "sessions.db", clock)
    desk = Desk(store, clock)
    for session_id in SESSIONS[:2]:
        epoch = desk.acquire(f"session/{session_id}").lease.epoch
        for n in range(6):
            desk.append(session_id, reply(f"{session_id}+{n}", b"%d" % n * 900), epoch=epoch)
    return store


def copy(folder: Path, to: Path) -> None:
    """The files of a store, as a kill at this moment leaves them."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*-shm"))


def reads() -> list[Read]:
    """Everything there is to read, a part each."""

    def session(id: str) -> Read:
        return lambda reader: reader.session(id)

    def slice_of(id: str, query: SliceQuery) -> Read:
        def read(reader: Reader) -> Any:
            found = reader.session(id)
            assert found is not None
            return reader.slice(found[0], query).events

        return read

    found: list[Read] = [lambda reader: reader.live_leases(), lambda reader: reader.with_work()]
    found.append(
        lambda reader: reader.page("default", before=99, limit=99, archived=True, labels={})
    )
    for id in SESSIONS:
        found += [session(id), slice_of(id, SliceQuery())]
        found.append(slice_of(id, SliceQuery(newest_first=True, types=("agent.*",))))
        found.append(slice_of(id, SliceQuery(types=("user.message",), low=5)))
    return found


def truth(store: SqliteStore) -> list[Any]:
    """What all reads say."""
    with closing(store.reader()) as reader:
        return [read(reader) for read in reads()]


def survives(folder: Path, true: list[Any]) -> bool:
    """Whether a damaged store opens; a read that is wrong, or an untyped error, raises."""
    try:
        store = SqliteStore(folder / "sessions.db", FakeClock())
    except CarpalError as error:
        if error.reason not in TYPED or str(folder / "sessions.db") not in str(error):
            raise
        return False
    with closing(store), closing(store.reader()) as reader:
        for read, said in zip(reads(), true, strict=True):
            try:
                assert read(reader) == said
            except StoreCorrupt:
                continue
            except CarpalError as error:
                if error.reason is not Reason.DATA_CORRUPT:
                    raise
    return True


def flip(file: Path, chance: random.Random) -> str:
    """One bit, somewhere."""
    data = bytearray(file.read_bytes())
    where, bit = chance.randrange(len(data)), chance.randrange(8)
    data[where] ^= 1 << bit
    file.write_bytes(data)
    return f"{file.name}: bit {bit} of byte {where}"


def cut(file: Path, chance: random.Random) -> str:
    """The end of the file, from somewhere on."""
    size = chance.choice([0, chance.randrange(file.stat().st_size)])
    with file.open("r+b") as opened:
        opened.truncate(size)
    return f"{file.name}: cut to {size} bytes"


def rounds(folder: Path, harm: Callable[[Path, random.Random], str], count: int, seed: int) -> int:
    """Damage a killed and a closed store in turn; how often one opened all the same."""
    chance = random.Random(seed)
    store = small_store(folder / "served")
    true = truth(store)
    copy(folder / "served", folder / "killed")
    store.close()
    opened = 0
    for number in range(count):
        at = folder / "damaged"
        shutil.copytree(folder / ("served" if number % 2 else "killed"), at)
        file = at / ("sessions.db" if number % 4 else "sessions.db-wal")
        what = harm(file, chance)
        try:
            # Twice: the first start must not make of damage what the second takes for whole.
            opened += survives(at, true) or survives(at, true)
        except BaseException as error:
            error.add_note(f"seed {seed}, round {number}: {what}")
            raise
        shutil.rmtree(at)
    return opened


def main() -> None:
    """`python -m tests.sessiond.damage ROUNDS`: as many as there is time for."""
    logging.disable()
    count, seed = int(sys.argv[1]), random.randrange(2**32)
    for harm in (flip, cut):
        with tempfile.TemporaryDirectory() as folder:
            opened = rounds(Path(folder), harm, count, seed)
        sys.stdout.write(f"{harm.__name__}: {count} rounds, {opened} opened, seed {seed}\n")


if __name__ == "__main__":
    main()
