"""Copies: whole or nothing, and nothing leads out, whoever made the archive."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from hands.inside import copying
from hands.inside.beneath import ToolError, Workspace
from hands.visit.copy import remote


class Bytes(io.BytesIO):
    """A source."""

    def read(self, size: int | None = -1) -> bytes:
        """As a file."""
        return super().read(size)


def _given(folder: Path, path: str) -> Bytes:
    sink = io.BytesIO()
    copying.give(Workspace(folder), path, sink)
    return Bytes(sink.getvalue())


def _hostile(*members: tarfile.TarInfo) -> Bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return Bytes(made.getvalue())


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = 1 if kind == tarfile.REGTYPE else 0
    return info


_TOP = _member("it", tarfile.DIRTYPE)
HOSTILE = {
    "absolute": [_member("/etc/evil")],
    "up": [_TOP, _member("it/../../evil")],
    "two": [_member("it"), _member("other")],
    "another": [_member("other")],
    "nothing": [],
    "symlink": [_member("it", tarfile.SYMTYPE, "/etc")],
    "symlink out": [_TOP, _member("it/l", tarfile.SYMTYPE, "../../..")],
    "symlink beside itself": [_TOP, _member("it/l", tarfile.SYMTYPE, "../.ssh/config")],
    "symlink to above itself": [_TOP, _member("it/d/l", tarfile.SYMTYPE, "../..")],
    "through a symlink": [
        _TOP,
        _member("it/l", tarfile.SYMTYPE, "."),
        _member("it/l/x"),
    ],
    "hard link": [_TOP, _member("it/h", tarfile.LNKTYPE, "/etc/passwd")],
    "device": [_TOP, _member("it/d", tarfile.CHRTYPE)],
    "fifo": [_TOP, _member("it/f", tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_hand_sends_and_leads_out_is_refused_and_nothing_of_it_stays(
    tmp_path: Path, name: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with pytest.raises(ToolError):
        copying.take(Workspace(here), "x", "x", _hostile(*HOSTILE[name]))
    assert list(here.iterdir()) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["here"]


def test_a_copy_that_is_cut_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(300_000))
    whole = _given(tmp_path, "a").getvalue()
    here = tmp_path / "here"
    here.mkdir()
    with pytest.raises(ToolError):
        copying.take(Workspace(here), "x", "a", Bytes(whole[:200_000]))
    assert list(here.iterdir()) == []


def test_a_file_takes_the_place_of_a_file_and_a_folder_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x").write_text("x")
    here = tmp_path / "here"
    (here / "d").mkdir(parents=True)
    (here / "d/mine").write_text("mine")
    (here / "f").write_text("old")
    copying.take(Workspace(here), "f", "new", _given(tmp_path, "new"))
    assert (here / "f").read_text() == "new"
    copying.take(Workspace(here), "d", "new", _given(tmp_path, "new"))
    assert (here / "d/new").read_text() == "new", "into a folder, by its name"
    with pytest.raises(ToolError, match="is there already"):
        copying.take(Workspace(here), ".", "d", _given(tmp_path, "d"))
    assert (here / "d/mine").read_text() == "mine"
    copying.take(Workspace(here), "e/f/", "d", _given(tmp_path, "d"))
    assert (here / "e/f/d/x").read_text() == "x"


def test_what_leads_out_of_a_folder_is_not_sent(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "in").symlink_to("x")
    (folder / "out").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    here = tmp_path / "here"
    here.mkdir()
    copying.take(Workspace(here), ".", "d", _given(tmp_path, "d"))
    assert [each.name for each in (here / "d").iterdir()] == ["in"]
    with pytest.raises(ToolError):
        _given(folder, "out")
    with pytest.raises(ToolError):
        _given(folder, "pipe")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sesn_1:shell:/workspace/x", ("sesn_1", "shell", "/workspace/x")),
        ("sesn_1::a:b", ("sesn_1", "", "a:b")),
        ("./sesn_1:shell:x", None),
        ("/a:b:c", None),
        ("plain", None),
        ("a:b", None),
        ("a:b:", None),
    ],
)
def test_a_path_in_a_hand_names_session_and_hand(text: str, found: object) -> None:
    assert remote(text) == found
