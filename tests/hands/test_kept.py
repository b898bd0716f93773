"""Contents of changed files on their way to blobs; what a hand plants there leads nowhere."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import types_pb2
from hands import kept
from hands.api import Change, FileChange, Outcome, Result
from hands.blobs import Blobs

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


def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / DIGEST.hex()).write_bytes(CONTENT)
    return tmp_path


async def test_what_was_taken_is_told_as_kept_and_leaves_the_hands_folder(tmp_path: Path) -> None:
    blobs = Taking()
    result = await kept.taken(RESULT, folder(tmp_path), blobs, ["s"])
    assert [each.kept for each in result.files] == [True, False]
    assert blobs.taken == [("s", CONTENT)]
    assert not list((tmp_path / "kept").iterdir())


async def test_what_could_not_be_taken_is_told_without_its_content(tmp_path: Path) -> None:
    full = refuse(Reason.STORE_FULL, "no room")
    result = await kept.taken(RESULT, folder(tmp_path), Taking(full), ["s"])
    assert [each.kept for each in result.files] == [False, False]
    assert result.files[0].digest == DIGEST


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
    result = await kept.taken(RESULT, tmp_path / "hand", blobs, ["s"])
    assert not blobs.taken
    assert not result.files[0].kept
    assert (elsewhere / DIGEST.hex()).read_bytes() == CONTENT
