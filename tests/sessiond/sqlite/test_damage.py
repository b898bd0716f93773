"""Damaged files: a typed refusal that names the file, or the truth, and never anything else."""

import asyncio
import os
import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from sessiond.sqlite.backup import backup
from sessiond.sqlite.file import PAGE_BYTES
from sessiond.sqlite.store import SqliteStore
from sessiond.store import StoreCorrupt
from tests.command import Command
from tests.pace import times
from tests.pki import Pki
from tests.sessiond import damage
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message, refused
from tests.sessiond.serving import WAIT, event, serving

FLIPS = times(150, 2000)
CUTS = 40

Files = tuple[Path, list[object]]
"""Of a store, and what all reads of it say."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of a store whose process was killed, and what it said before."""
    folder = tmp_path_factory.mktemp("killed")
    store = damage.small_store(folder / "store")
    with closing(store):
        true = damage.truth(store)
        damage.copy(folder / "store", folder / "copy")
    return folder / "copy", true


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The same, but it was closed: all is in one file."""
    folder = tmp_path_factory.mktemp("closed")
    store = damage.small_store(folder / "store")
    true = damage.truth(store)
    store.close()
    return folder / "store", true


def test_what_a_kill_left_is_whole(killed: Files, closed: Files, tmp_path: Path) -> None:
    for number, (files, true) in enumerate((killed, closed)):
        shutil.copytree(files, tmp_path / str(number))
        store = SqliteStore(tmp_path / str(number) / "sessions.db", FakeClock())
        with closing(store):
            assert damage.truth(store) == true


@pytest.mark.parametrize("seed", range(5))
def test_any_bit_flipped_is_refused_by_name_or_harms_no_read(tmp_path: Path, seed: int) -> None:
    damage.rounds(tmp_path, damage.flip, FLIPS // 5, seed)


def test_any_cut_is_refused_by_name_or_harms_no_read(tmp_path: Path) -> None:
    damage.rounds(tmp_path, damage.cut, CUTS, seed=0)


@pytest.mark.parametrize("bytes_", [1, 8, 14, 100, 5000])
def test_a_last_page_cut_short_is_not_taken_for_one_that_ends_in_zeros(
    closed: Files, tmp_path: Path, bytes_: int
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(closed[0], folder)
    file = folder / "sessions.db"
    os.truncate(file, file.stat().st_size - bytes_)
    for opened in (
        lambda: SqliteStore(file, FakeClock()),
        lambda: backup(file, tmp_path / "backup.db"),
    ):
        with refused(Reason.DATA_CORRUPT) as error:
            opened()
        assert "its last page is cut short" in str(error.value)
    assert not (tmp_path / "backup.db").exists()


def test_an_older_write_ahead_log_put_back_is_refused(killed: Files, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(killed[0], folder)
    wal = folder / "sessions.db-wal"
    with wal.open("r+b") as file:
        file.truncate(32 + 4 * (PAGE_BYTES + 24))
    with refused(Reason.DATA_CORRUPT) as error:
        SqliteStore(folder / "sessions.db", FakeClock())
    assert "sessions.db-wal is damaged: it has" in str(error.value)
    assert "carpal sessiond restore" in str(error.value)


def test_a_store_whose_file_is_gone_is_not_begun_anew_beside_its_log(
    killed: Files, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(killed[0], folder)
    (folder / "sessions.db").unlink()
    with refused(Reason.DATA_CORRUPT) as error:
        SqliteStore(folder / "sessions.db", FakeClock())
    assert "it is missing" in str(error.value)


async def test_damage_met_while_serving_is_told_to_the_one_who_reads_and_to_nobody_else(
    closed: Files, tmp_path: Path, pki: Pki
) -> None:
    shutil.copytree(closed[0], tmp_path / "store")
    file = tmp_path / "store" / "sessions.db"
    async with serving(tmp_path / "store", pki, FakeClock()) as sessions:
        stub = await sessions.operator()
        data = bytearray(file.read_bytes())
        data[data.index(b"33" * 100)] ^= 1  # inside an event
        file.write_bytes(data)
        for _ in range(2):
            codes = []
            for session_id in damage.SESSIONS:
                request = pb.GetEventsRequest(session_id=session_id)
                try:
                    with rpc_errors("sessiond"):
                        await stub.GetEvents(request)
                except CarpalError as error:
                    codes.append(error.reason)
            assert codes[0] is Reason.DATA_CORRUPT
            assert len(codes) < len(damage.SESSIONS)
        cursors = [types_pb2.TailCursor(session_id=id) for id in damage.SESSIONS]
        with refused(Reason.DATA_CORRUPT), rpc_errors("sessiond"):
            async for _ in stub.TailEvents(pb.TailEventsRequest(cursors=cursors)):
                pass
        emit = pb.EmitEventRequest(session_id="sesn_2", event=event("goes-on"))
        assert (await stub.EmitEvent(emit)).event.position


async def test_a_damaged_store_ends_the_process_in_one_line_that_says_what_to_do(
    killed: Files, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    Pki(tmp_path / "pki").issue("sessiond", "sessiond", directory=state / "sessiond" / "identity")
    for file in killed[0].iterdir():
        shutil.copy(file, state / "sessiond")
    place = state / "sessiond" / "sessions.db"
    damage.cut(place, random.Random(1))
    for _ in range(2):  # nor does trying again help, or harm
        ended = await Command(tmp_path)(
            "sessiond", "run", "--state-dir", str(state), "--listen", "127.0.0.1:0"
        )
        said = [line for line in ended.stderr.splitlines() if line.startswith("carpal: ")]
        assert ended.code == 1
        assert len(said) == 1
        assert str(place) in said[0]
        assert (
            "restore a backup that is whole: `carpal sessiond restore --from FILE --replace`"
            in said[0]
        )
        assert "Traceback" not in ended.stderr


async def test_damage_that_the_writer_meets_stops_it_in_words(tmp_path: Path, pki: Pki) -> None:
    place = tmp_path / "sessions.db"
    with closing(SqliteStore(place, FakeClock())) as store:
        desk = Desk(store, FakeClock())
        for number in range(50):
            first = (message(f"{number}-{k}", bytes(2_000)) for k in range(50))
            desk.create(f"sesn_{number}", *first)
    async with serving(tmp_path, pki, FakeClock()) as sessions:
        stub = await sessions.operator()
        broken = asyncio.create_task(sessions.parts.writer.until_broken())
        with place.open("r+b") as file:  # all but what was read last, which is at hand
            for page in range(20, place.stat().st_size // PAGE_BYTES):
                file.seek(page * PAGE_BYTES + 2_000)
                file.write(b"damage")
        async with asyncio.timeout(WAIT):
            with refused(Reason.UNAVAILABLE), rpc_errors("sessiond"):
                for number in range(50):
                    new = event(f"new-{number}")
                    await stub.EmitEvent(
                        pb.EmitEventRequest(session_id=f"sesn_{number}", event=new)
                    )
            with pytest.raises(StoreCorrupt, match=r"sessions\.db is damaged"):
                await broken
