"""`--mount` of `carpal run`: what of this machine goes along."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.operator.connection import connect, find
from carpal.operator.mounting import read_mount, source_of
from carpal.v1 import session_pb2
from tests.operator.real import real_sessiond


@pytest.mark.parametrize(
    ("flag", "hand", "path", "source"),
    [
        ("r=git:https://h/r?a=b#c", "", "r", "git:https://h/r?a=b#c"),
        ("shell:a/b=text:x=y:z", "shell", "a/b", "text:x=y:z"),
    ],
)
def test_a_mount_is_read(flag: str, hand: str, path: str, source: str) -> None:
    read = read_mount(flag)
    assert (read.hand, read.path, read.source) == (hand, path, source)


@pytest.mark.parametrize(
    "flag", ["", "x", "=y", "x=", "a b:x=text:y", "x=/no/such/file", ":=text:"]
)
def test_what_is_no_mount_is_refused(flag: str) -> None:
    with pytest.raises(CarpalError, match=r"^--mount: "):
        read_mount(flag)


async def test_a_file_and_a_folder_of_this_machine_go_along_as_blobs(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a").write_bytes(bytes(500_000))
    os.link(folder / "sub/a", folder / "b")
    os.mkfifo(folder / "pipe")
    async with (
        real_sessiond(tmp_path) as server,
        connect(find(state=tmp_path / "state")) as operator,
    ):
        _, blob, _ = await source_of(operator, read_mount(f"a={folder / 'sub/a'}"))
        hand, tar, path = await source_of(operator, read_mount(f"shell:w={folder}"))
        assert (hand, path) == ("shell", "w")
        ann = await server.operator("ann")

        async def got(ref: str) -> bytes:
            digest = bytes.fromhex(ref.partition(":")[2])
            stream = ann.GetBlob(session_pb2.GetBlobRequest(digest=digest))
            return b"".join([piece.data async for piece in stream])

        assert await got(blob) == bytes(500_000)
        with tarfile.open(fileobj=io.BytesIO(await got(tar))) as packed:
            kinds = {member.name: member.type for member in packed}
    assert kinds["./b"] == kinds["./sub/a"] == tarfile.REGTYPE
    assert "./pipe" not in kinds
