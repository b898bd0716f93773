"""Pictures that are read leave the hand as attachments, and a line of text stands for each."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.inside import read_picture
from hands.pictures import header
from tests.hands.life.test_mounts import Kept
from tests.hands.place import Place, open_place, until
from tests.png import BEGINS, lying, png


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[tuple[Place, Kept]]:
    """A service, and the blobs that are the store's."""
    blobs = Kept()
    async with open_place(tmp_path / "state", blobs=blobs) as place:
        yield place, blobs


async def put(place: Place, hand: str, name: str, data: bytes) -> Path:
    """A file in the workspace."""
    path = place.inventory.folder_of(hand) / "workspace" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


async def test_a_picture_that_is_read_is_attached_and_a_text_stands_for_it_h46(
    kept: tuple[Place, Kept],
) -> None:
    place, blobs = kept
    hand = await place.hand()
    data = png()
    await put(place, hand, "d/shot.png", data)
    digest = hashlib.sha256(data).digest()
    for _ in range(2):  # the second has the same bytes
        result = await place.run(hand, "read", file_path="d/shot.png")
        assert result.outcome == pb.OUTCOME_OK
        assert result.content == f"[image/png, {len(data)} bytes, sha256 {digest.hex()}: attached]"
        (image,) = result.attachments
        assert (image.digest, image.size, image.media_type, image.name) == (
            *(digest, len(data)),
            *("image/png", "shot.png"),
        )
    assert blobs.blobs == {digest: data}
    folder = place.inventory.folder_of(hand) / "kept"
    await until(lambda: not list(folder.iterdir()), "what was taken stays in the hand")
    assert not result.files, "nothing of the workspace was changed"


@pytest.mark.parametrize(
    ("beginning", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", ""),
        (b"%PDF-1.7", ""),
        (b"", ""),
        (b"text", ""),
    ],
)
def test_pictures_are_told_by_how_they_begin(beginning: bytes, kind: str) -> None:
    assert read_picture.media_type(beginning[:12]) == kind


async def test_a_picture_that_the_store_does_not_take_is_left_out_and_the_text_says_so_h46(
    kept: tuple[Place, Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, blobs = kept
    monkeypatch.setattr("hands.life.kept.LIMIT", 0.1)
    blobs.writes.clear()
    hand = await place.hand()
    await put(place, hand, "shot.png", png())
    result = await place.run(hand, "read", file_path="shot.png")
    assert result.outcome == pb.OUTCOME_OK
    assert not result.attachments
    why = "the session's store had not all of the result within 0.1 s"
    assert result.content.endswith(f"\n[1 attachment left out: {why}]")
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_a_picture_too_large_to_leave_says_what_to_do(kept: tuple[Place, Kept]) -> None:
    place, blobs = kept
    hand = await place.hand()
    await put(place, hand, "shot.png", png() + bytes(read_picture.BYTES_MAX))
    result = await place.run(hand, "read", file_path="shot.png")
    assert result.outcome == pb.OUTCOME_ERROR
    assert "make it smaller" in result.content
    assert not blobs.blobs


async def test_no_picture_outside_the_workspace_leaves_h16(
    kept: tuple[Place, Kept], tmp_path: Path
) -> None:
    place, blobs = kept
    hand = await place.hand()
    outside = tmp_path / "outside.png"
    outside.write_bytes(png())
    link = await put(place, hand, "link.png", b"")
    link.unlink()
    link.symlink_to(outside)
    for path in ("link.png", str(outside), "../../../../outside.png"):
        assert (await place.run(hand, "read", file_path=path)).outcome == pb.OUTCOME_ERROR
    assert not blobs.blobs


async def test_what_is_no_picture_is_read_as_before(kept: tuple[Place, Kept]) -> None:
    place, _ = kept
    hand = await place.hand()
    await put(place, hand, "note.png", b"GIF, said somebody\n")
    result = await place.run(hand, "read", file_path="note.png")
    assert result.content == "GIF, said somebody\n"
    assert not result.attachments


async def test_a_large_picture_is_scaled_before_it_is_a_blob_and_the_text_says_so(
    kept: tuple[Place, Kept],
) -> None:
    place, blobs = kept
    hand = await place.hand()
    await put(place, hand, "shot.png", png(1920, 1080))
    result = await place.run(hand, "read", file_path="shot.png")
    assert result.content.splitlines()[1] == "[shot.png: scaled from 1920x1080 to 1456x819]"
    (image,) = result.attachments
    data = blobs.blobs[image.digest]
    assert header.read(data) == header.Header("image/png", 1456, 819)
    assert (image.size, image.media_type, image.name) == (len(data), "image/png", "shot.png")
    assert list(blobs.blobs) == [image.digest], "the large one is nowhere"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (png(10_000), "it has 10000x10000 pixels, more than the 32000000 that are scaled"),
        (lying(10_000, 10_000), "it has 10000x10000 pixels, more than the 32000000"),
        (lying(5000, 5000), "it is damaged"),
        (BEGINS + b" and so on", "it is damaged, or no PNG"),
    ],
    ids=["10,000 pixels", "says it has them", "says fewer", "none"],
)
async def test_a_picture_that_cannot_be_shown_is_left_out_and_the_hand_goes_on_h46(
    kept: tuple[Place, Kept], data: bytes, why: str
) -> None:
    place, blobs = kept
    hand = await place.hand()
    await put(place, hand, "shot.png", data)
    result = await place.run(hand, "read", file_path="shot.png")
    assert result.outcome == pb.OUTCOME_OK
    assert f"[shot.png is left out: {why}" in result.content
    assert "1 attachment left out" not in result.content, "it is said once"
    assert not result.attachments
    assert not blobs.blobs
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_a_name_that_a_hand_chose_is_a_name_in_the_line_about_it(
    kept: tuple[Place, Kept],
) -> None:
    place, _ = kept
    hand = await place.hand()
    await put(place, hand, "a]\n[\x1b[2Jb.png", png(3000))
    result = await place.run(hand, "read", file_path="a]\n[\x1b[2Jb.png")
    lines = result.content.splitlines()
    assert lines[-1] == "[a?????2Jb.png: scaled from 3000x3000 to 1092x1092]"
