"""Output on disk: what is there says itself what is there, and what had no room is a hole."""

import os
import threading
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.contract import Output
from hands.inside import spool
from hands.inside.output import KEEP
from hands.inside.spool import LIMIT, PIECE, Writer
from hands.life import spool as daemons
from tests.hands.place import open_place

CHUNK = PIECE // 4


def _chunk(number: int, size: int = CHUNK) -> bytes:
    return (number % 251).to_bytes(1, "big") * size


def _fill(writer: Writer, chunks: range) -> None:
    for number in chunks:
        writer.write(number * CHUNK, _chunk(number))


def test_what_was_written_is_read_from_any_offset(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "c")
    _fill(writer, range(12))
    whole = b"".join(_chunk(number) for number in range(12))
    for offset in (0, 1, CHUNK, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE - 1):
        begin, data = spool.read(tmp_path / "c", offset, CHUNK)
        assert begin == offset
        assert data
        assert whole[offset : offset + len(data)] == data
    assert spool.read(tmp_path / "c", 3 * PIECE, CHUNK) == (3 * PIECE, b"")


def test_a_full_spool_leaves_out_what_comes_and_goes_on_once_there_is_room_l23(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_LOOK", 0.0)
    folder, writer = tmp_path / "c", Writer(tmp_path / "c")
    _fill(writer, range(40))
    assert spool.held(folder) == LIMIT
    spool.free(folder, 6 * PIECE)
    assert spool.held(folder) == LIMIT // 2, "the newer half stays for who comes later"
    _fill(writer, range(40, 44))
    assert spool.read(folder, LIMIT, CHUNK) == (40 * CHUNK, _chunk(40))


def test_nothing_is_freed_before_it_is_read_or_while_there_is_room(tmp_path: Path) -> None:
    folder, writer = tmp_path / "c", Writer(tmp_path / "c")
    _fill(writer, range(16))
    spool.free(folder, 4 * PIECE)
    assert spool.held(folder) == LIMIT // 2
    _fill(writer, range(16, 32))
    spool.free(folder, PIECE - 1)
    assert spool.held(folder) == LIMIT
    assert spool.read(folder, 0, CHUNK) == (0, _chunk(0))


def test_a_disk_that_takes_nothing_costs_output_and_not_the_call(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("in the way")
    Writer(tmp_path / "c").write(0, b"x")
    assert (tmp_path / "c").read_text() == "in the way"


def test_a_writer_that_begins_anew_goes_on_with_what_is_there(tmp_path: Path) -> None:
    _fill(Writer(tmp_path / "c"), range(3))
    _fill(Writer(tmp_path / "c"), range(3, 6))
    assert spool.read(tmp_path / "c", 3 * CHUNK - 1, CHUNK)[1] == _chunk(2, 1)
    assert spool.read(tmp_path / "c", 3 * CHUNK, CHUNK) == (3 * CHUNK, _chunk(3))


def test_output_of_any_hand_type_is_kept_whole_with_its_beginning_in_memory(
    tmp_path: Path,
) -> None:
    kept = daemons.Spool(tmp_path, "c")
    whole = b"".join(_chunk(number, 50_000) for number in range(8))
    for offset in range(0, len(whole), 50_000):
        kept.take(Output(offset, whole[offset : offset + 50_000]))
        kept.take(Output(0, whole[:1000]))  # as one that repeats itself may
    assert (kept.total, len(kept.head)) == (len(whole), KEEP)
    offset, read = 0, b""
    while offset < kept.total:
        begin, data = kept.read(offset, 30_001)
        assert begin == offset
        read += data
        offset += len(data)
    assert read == whole


def test_spools_that_nobody_asks_for_are_swept(tmp_path: Path) -> None:
    for call_id in ("c1", "c2"):
        Writer(daemons.folder_of(tmp_path, call_id)).write(0, b"x")
    daemons.sweep(tmp_path, frozenset({"c2"}))
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["c2"]


def test_what_a_command_plants_in_a_spool_holds_up_nobody_and_ends_nobody(tmp_path: Path) -> None:
    """A pipe would be waited for in the daemon's loop; a folder or a circle would raise there."""
    folder = daemons.folder_of(tmp_path, "c")
    writer = Writer(folder)
    folder.mkdir(parents=True)
    os.mkfifo(folder / "0")
    (folder / str(CHUNK)).mkdir()
    (folder / "7").symlink_to("7")
    writer.write(0, _chunk(0))
    writer.write(CHUNK, _chunk(1))
    assert spool.read(folder, 0, CHUNK) == (0, b"")
    spool.held(folder)
    writer = Writer(folder)
    _fill(writer, range(2, 30))
    spool.free(folder, 30 * CHUNK)
    assert spool.read(folder, 8 * CHUNK, CHUNK)[1]


def test_a_spool_that_cannot_be_removed_or_listed_keeps_no_daemon_from_starting(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "spool"
    folder.write_text("a file")
    daemons.sweep(tmp_path, frozenset())
    folder.unlink()
    folder.mkdir()
    (folder / "c").write_text("a file")
    daemons.sweep(tmp_path, frozenset())
    spool.remove(folder / "c")


def test_no_more_is_removed_of_a_spool_than_a_writer_of_ours_makes(tmp_path: Path) -> None:
    """Commands of the hand may fill it faster than the daemon removes."""
    folder = daemons.folder_of(tmp_path, "c")
    _fill(Writer(folder), range(3))
    spool.remove(folder)
    assert not folder.exists()
    folder.mkdir()
    for number in range(2500):
        (folder / str(number)).touch()
    spool.remove(folder)
    assert len(list(folder.iterdir())) >= 1000


async def test_what_a_hand_makes_of_a_spool_does_not_hold_up_the_daemons_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed_by: list[threading.Thread] = []
    monkeypatch.setattr(
        spool, "remove", lambda _folder: removed_by.append(threading.current_thread())
    )
    async with open_place(tmp_path / "state") as place:
        hand = await place.hand()
        request = place.request(hand, command="true")
        await place.steps(request)
        await place.service.acknowledge(
            pb.AcknowledgeRequest(driver=place.driver(), hand_id=hand, call_ids=[request.call_id])
        )
        await place.release(hand)
    assert removed_by
    assert threading.main_thread() not in removed_by
