"""Contents of changed files on their way to blobs; what a hand plants there leads nowhere."""

import asyncio
import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import types_pb2
from hands.blobs import Blobs
from hands.contract import Attachment, Change, FileChange, Outcome, Result
from hands.life import kept
from tests.hands.place import PATIENCE
from tests.png import png

CONTENT = b"content"
DIGEST = hashlib.sha256(CONTENT).digest()
CHANGE = FileChange("a", Change.CREATED, len(CONTENT), DIGEST, kept=True)
RESULT = Result(Outcome.OK, "done", files=[CHANGE, FileChange("b", Change.REMOVED)])


class Taking(Blobs):
    """Blobs that are taken, or refused."""

    def __init__(self, refusal: CarpalError | None = None) -> None:
        super().__init__()
        self.refusal = refusal
        self.taken: list[tuple[str, bytes]] = []

    async def write(self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo) -> None:
        if self.refusal:
            raise self.refusal
        self.taken.append((session_id, file.read()))


class Away(Blobs):
    """Blobs whose link is away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def write(self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo) -> None:
        self.asked.set()
        await asyncio.Event().wait()


def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / DIGEST.hex()).write_bytes(CONTENT)
    return tmp_path


async def put(hand_folder: Path, blobs: Blobs, limit: float = PATIENCE) -> kept.Keeping:
    keeping = kept.Keeping(RESULT, hand_folder, blobs, ["s"], limit)
    await keeping.put()
    return keeping


async def test_what_was_taken_is_told_as_kept_and_stays_until_that_is_journaled(
    tmp_path: Path,
) -> None:
    blobs = Taking()
    keeping = await put(folder(tmp_path), blobs)
    assert [each.kept for each in keeping.result.files] == [True, False]
    assert blobs.taken == [("s", CONTENT)]
    assert [each.name for each in (tmp_path / "kept").iterdir()] == [DIGEST.hex()]
    keeping.clear()
    assert not list((tmp_path / "kept").iterdir())


async def test_what_could_not_be_taken_is_told_without_its_content_and_removed(
    tmp_path: Path,
) -> None:
    full = refuse(Reason.STORE_FULL, "no room")
    keeping = await put(folder(tmp_path), Taking(full))
    assert [each.kept for each in keeping.result.files] == [False, False]
    assert keeping.result.files[0].digest == DIGEST
    (tmp_path / "kept/planted").mkdir()
    keeping.clear()
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["planted"]


async def test_a_content_that_is_gone_keeps_none_of_the_others_back(tmp_path: Path) -> None:
    gone = dataclasses.replace(CHANGE, path="gone", digest=bytes(32))
    result = dataclasses.replace(RESULT, files=[gone, CHANGE])
    keeping = kept.Keeping(result, folder(tmp_path), Taking(), ["s"])
    await keeping.put()
    assert [each.kept for each in keeping.result.files] == [False, True]


async def test_contents_are_waited_for_a_bounded_time_together(tmp_path: Path) -> None:
    keeping = await put(folder(tmp_path), Away(), limit=0.05)
    assert [each.kept for each in keeping.result.files] == [False, False]


async def test_contents_are_waited_for_until_someone_says_stop(tmp_path: Path) -> None:
    blobs = Away()
    keeping = kept.Keeping(RESULT, folder(tmp_path), blobs, ["s"])
    putting = asyncio.create_task(keeping.put())
    async with asyncio.timeout(PATIENCE):
        await blobs.asked.wait()
        keeping.stop()
        keeping.stop()
        await putting
        await keeping.put()  # stopped before it began
    assert not keeping.result.files[0].kept


def _linked_file(folder: Path, elsewhere: Path) -> None:
    file = folder / "kept" / DIGEST.hex()
    file.unlink()
    file.symlink_to(elsewhere / DIGEST.hex())


def _linked_folder(folder: Path, elsewhere: Path) -> None:
    (folder / "kept" / DIGEST.hex()).unlink()
    (folder / "kept").rmdir()
    (folder / "kept").symlink_to(elsewhere)


def _pipe(folder: Path, elsewhere: Path) -> None:
    file = folder / "kept" / DIGEST.hex()
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("plant", [_linked_file, _linked_folder, _pipe])
async def test_what_a_hand_plants_in_its_place_is_neither_read_nor_removed(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / DIGEST.hex()).write_bytes(CONTENT)
    (tmp_path / "hand").mkdir()
    plant(folder(tmp_path / "hand"), elsewhere)
    blobs = Taking()
    keeping = await put(tmp_path / "hand", blobs)
    assert not blobs.taken
    assert not keeping.result.files[0].kept
    keeping.clear()
    assert (elsewhere / DIGEST.hex()).read_bytes() == CONTENT


def attached(tmp_path: Path, *given: tuple[bytes, str], swapped: bytes = b"") -> Result:
    """A result with these attached, each with its media type; `swapped` lies there in place."""
    (tmp_path / "kept").mkdir()
    told = []
    for data, kind in given:
        digest = hashlib.sha256(data).digest()
        (tmp_path / "kept" / digest.hex()).write_bytes(swapped or data)
        told.append(Attachment(digest, len(data), kind, "a"))
    return Result(Outcome.OK, "done", attachments=told)


async def test_what_is_no_picture_is_attached_as_it_is_and_a_picture_by_its_true_kind(
    tmp_path: Path,
) -> None:
    result = attached(tmp_path, (b"a,b", "text/csv"), (png(), "image/jpeg"))
    blobs = Taking()
    keeping = kept.Keeping(result, tmp_path, blobs, ["s"], PATIENCE)
    await keeping.put()
    kinds = [each.media_type for each in keeping.result.attachments]
    assert kinds == ["text/csv", "image/png"]
    assert [data for _, data in blobs.taken] == [b"a,b", png()]
    assert keeping.result.content == "done"


@pytest.mark.parametrize("swapped", [png(3), b"x" * 6_000_000])
async def test_of_a_picture_that_the_hand_changed_meanwhile_nothing_is_taken(
    tmp_path: Path, swapped: bytes
) -> None:
    result = attached(tmp_path, (png(), "image/png"), swapped=swapped)
    blobs = Taking()
    keeping = kept.Keeping(result, tmp_path, blobs, ["s"], PATIENCE)
    await keeping.put()
    assert not blobs.taken
    why = "what lies in the hand is not what the call said of it"
    assert keeping.result.content == f"done\n[1 attachment left out: {why}]"


async def test_of_several_pictures_each_that_is_left_out_has_its_line(tmp_path: Path) -> None:
    kinds = [(data, "image/png") for data in (b"none", png(), png(10_000))]
    keeping = kept.Keeping(attached(tmp_path, *kinds), tmp_path, Taking(), ["s"], PATIENCE)
    await keeping.put()
    assert len(keeping.result.attachments) == 1
    lines = keeping.result.content.splitlines()
    assert [line[:20] for line in lines] == ["done", "[a is left out: it i", "[a is left out: it h"]


POLICY = refuse(Reason.POLICY_FORBIDS, "a secret is in it")
FULL = refuse(Reason.STORE_FULL, "no room")


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        (POLICY, "the machine's owner does not let it leave"),
        (FULL, "the session's store did not take it: no room"),
    ],
)
async def test_why_an_attachment_is_left_out_is_said_as_it_is(
    tmp_path: Path, refusal: CarpalError, why: str
) -> None:
    result = attached(tmp_path, (b"a", "text/csv"), (b"b", "text/csv"))
    keeping = kept.Keeping(result, tmp_path, Taking(refusal), ["s"], PATIENCE)
    await keeping.put()
    assert keeping.result.content == f"done\n[2 attachments left out: {why}]"


async def test_what_was_not_tried_any_more_is_said_by_what_kept_it_from_that(
    tmp_path: Path,
) -> None:
    result = attached(tmp_path, (b"a", "text/csv"), (png(), "image/png"))
    gone = "its hand was gone before it was in the session's store"
    late = "the session's store had not all of the result within 0.05 s"
    assert kept.without(result).content == f"done\n[2 attachments left out: {gone}]"
    slow = kept.Keeping(result, tmp_path, Away(), ["s"], 0.05)
    await slow.put()
    assert slow.result.content == f"done\n[2 attachments left out: {late}]"
    lost = kept.Keeping(result, tmp_path, blobs := Away(), ["s"], PATIENCE)
    putting = asyncio.create_task(lost.put())
    async with asyncio.timeout(PATIENCE):
        await blobs.asked.wait()
        lost.stop()
        await putting
    assert lost.result.content == f"done\n[2 attachments left out: {gone}]"
    nobodys = kept.Keeping(result, tmp_path, Taking(), [])
    await nobodys.put()
    assert nobodys.result.content.endswith("left out: its hand is no session's any more]")


async def test_pictures_of_a_result_that_take_too_long_leave_time_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr("hands.pictures.fitting._SCALER", script)
    result = attached(tmp_path, (png(3000), "image/png"), (b"a", "text/csv"), (png(), "image/png"))
    keeping = kept.Keeping(result, tmp_path, Taking(), ["s"], 1.5)
    await keeping.put()
    assert [each.media_type for each in keeping.result.attachments] == ["text/csv", "image/png"]
    why = "all pictures of a result are scaled within 1 s"
    assert keeping.result.content == f"done\n[a is left out: {why}]"
