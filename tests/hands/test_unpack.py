"""Archives and files on their way into a workspace: what comes out of them, and what does not."""

import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hands.inside import pack, unpack
from hands.inside.beneath import ToolError, Workspace
from hands.inside.removal import remove_tree

Change = Callable[[tarfile.TarInfo], None]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace, beside a file that nobody may reach."""
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("untouched")
    return tmp_path / "work"


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """One member of an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w", kind: int = 1) -> io.BytesIO:
    """An archive."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=kind) as archive:  # type: ignore[call-overload]
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    made.seek(0)
    return made


def put(work: Path, archive: io.BytesIO, path: str = ".") -> str:
    """Unpack."""
    return unpack.archive(Workspace(work), path, archive)


def refused(work: Path, archive: io.BytesIO, path: str = ".") -> str:
    """What the refusal says; nothing beside the workspace is touched."""
    with pytest.raises(ToolError) as caught:
        put(work, archive, path)
    assert (work.parent / "secret").read_text() == "untouched"
    assert sorted(path.name for path in work.parent.iterdir()) == ["secret", "work"]
    return str(caught.value)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_folders_and_links_that_stay_inside_come_out_compressed_or_not(
    work: Path, mode: str, kind: int
) -> None:
    long = "d/" * 60 + "f"
    archive = tar(
        member("bin", type=tarfile.DIRTYPE, mode=0o755),
        member("bin/run", b"\xff\x00bytes", mode=0o4755, mtime=1_000_000),
        member("bin/alias", type=tarfile.SYMTYPE, linkname="../bin/run"),
        member(long, b"deep"),
        mode=mode,
        kind=kind,
    )
    said = put(work, archive, "to/here")
    run = work / "to/here/bin/run"
    assert run.read_bytes() == b"\xff\x00bytes"
    assert stat.S_IMODE(run.stat().st_mode) == 0o755, "set-user-id is not kept"
    assert run.stat().st_mtime == 1_000_000
    assert (work / "to/here/bin/alias").resolve() == run
    assert (work / "to/here" / long).read_bytes() == b"deep"
    assert said == "to/here: 4 members, 11 bytes"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("leak", "/etc/passwd"),
        ("leak", ".."),
        ("leak", "../secret"),
        ("a/leak", "../../secret"),
        ("a/b/leak", "../../../secret"),
        ("leak", "a/../../secret"),
        ("a/leak", "link/.."),
        ("leak", ""),
    ],
)
def test_a_tar_with_a_symlink_that_leads_out_is_rejected(
    work: Path, name: str, target: str
) -> None:
    """H15, H39."""
    said = refused(work, tar(member(name, type=tarfile.SYMTYPE, linkname=target)))
    assert "symlink that leads out" in said
    assert not os.path.lexists(work / name)


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", "a/../../secret", ".."])
def test_a_tar_with_a_path_that_leads_out_is_rejected(work: Path, name: str) -> None:
    """H39."""
    assert "leads out" in refused(work, tar(member(name, b"pwned")))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a FIFO"),
        (tarfile.LNKTYPE, "a hard link to '../secret'"),
    ],
)
def test_a_tar_with_a_device_a_fifo_or_a_hard_link_is_rejected(
    work: Path, kind: bytes, words: str
) -> None:
    """H39."""
    archive = tar(member("x", type=kind, linkname="../secret"))
    assert words in refused(work, archive)
    assert not os.path.lexists(work / "x")


def test_a_tar_writes_through_no_symlink_its_own_or_one_that_was_there(work: Path) -> None:
    """H39: the link stays inside, and is not followed all the same."""
    (work / "out").symlink_to(work.parent)
    assert "symlink" in refused(work, tar(member("out/secret", b"pwned")))
    link = member("d", type=tarfile.SYMTYPE, linkname="real")
    said = refused(
        work, tar(member("real", type=tarfile.DIRTYPE), link, member("d/file", b"x")), "sub"
    )
    assert "symlink" in said
    assert not (work / "sub/real/file").exists()


def test_a_file_or_a_link_takes_the_place_of_what_was_there_and_of_no_target(work: Path) -> None:
    (work / "a").symlink_to("../secret")
    (work / "b").write_text("old")
    put(work, tar(member("a", b"new"), member("b", type=tarfile.SYMTYPE, linkname="a")))
    assert (work / "a").read_text() == "new"
    assert not (work / "a").is_symlink()
    assert (work / "b").readlink() == Path("a")
    assert (work.parent / "secret").read_text() == "untouched"


def test_an_archive_that_is_cut_or_is_none_is_refused_and_leaves_no_part_of_a_file(
    work: Path,
) -> None:
    whole = tar(member("f", bytes(100_000))).getvalue()
    assert "unexpected end" in refused(work, io.BytesIO(whole[:50_000]))
    assert "not understood" in refused(work, io.BytesIO(b"no archive" * 100))
    assert "not understood" in refused(work, io.BytesIO(b""))
    assert list(work.iterdir()) == []


def test_a_header_that_would_fill_the_memory_is_refused_unread(work: Path) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE):
        info, _ = member("x", type=kind)
        info.size = 4 * 1024**3
        header = info.tobuf(tarfile.GNU_FORMAT)
        assert "a header of" in refused(work, io.BytesIO(header + bytes(10240)))
    sparse, _ = member("x", type=tarfile.GNUTYPE_SPARSE)
    assert "sparse" in refused(work, io.BytesIO(sparse.tobuf(tarfile.GNU_FORMAT) + bytes(10240)))
    told = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9" * 12}
    mapped, data = member("x", b"1\n0\n1\n", pax_headers=told)
    assert "sparse" in refused(work, tar((mapped, data), kind=tarfile.PAX_FORMAT))


def test_an_archive_that_unpacks_to_too_much_is_refused(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "BYTES_MAX", 100_000)
    bomb = tar(member("bomb", bytes(200_000)), mode="w:xz")
    assert len(bomb.getvalue()) < 1_000
    assert "more than 100000 bytes" in refused(work, bomb)
    monkeypatch.setattr(unpack, "ENTRIES_MAX", 3)
    assert "more than 3 entries" in refused(work, tar(*(member(str(n)) for n in range(4))))
    with pytest.raises(ToolError, match="more than 100000"):
        unpack.file(Workspace(work), "f", io.BytesIO(bytes(100_001)))
    assert not (work / "f").exists()


def test_a_saved_workspace_comes_back_as_it_was_without_what_leads_out(work: Path) -> None:
    (work / "d/empty").mkdir(parents=True)
    (work / "d/run").write_bytes(bytes(range(256)) * 5000)
    (work / "d/run").chmod(0o755)
    (work / "in").symlink_to("d/run")
    (work / "out").symlink_to("/etc/passwd")
    (work / "ümläut\udcff").write_text("x")
    os.mkfifo(work / "pipe")
    saved = io.BytesIO()
    said = pack.pack(Workspace(work), saved)
    assert "left out, since they could not be restored: 2 ('out', 'pipe')" in said
    saved.seek(0)
    put(work, saved, "again")
    again = work / "again"
    assert (again / "d/run").read_bytes() == (work / "d/run").read_bytes()
    assert (again / "d/run").stat().st_mode == (work / "d/run").stat().st_mode
    assert (again / "d/empty").is_dir()
    assert (again / "in").readlink() == Path("d/run")
    assert (again / "ümläut\udcff").read_text() == "x"
    assert not os.path.lexists(again / "out")


@pytest.fixture
def deep(work: Path) -> Iterator[Path]:
    """A workspace of 1010 folders, each in the last: deeper than what removes a test's goes."""
    here = os.open(work, os.O_RDONLY)
    try:
        for _ in range(1010):
            os.mkdir("ddd", dir_fd=here)
            deeper = os.open("ddd", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        yield work
    finally:
        os.close(here)
        parent = os.open(work.parent, os.O_RDONLY)
        remove_tree("work", parent)
        os.close(parent)


def test_a_workspace_of_any_depth_and_any_name_is_saved_and_what_no_path_can_name_is_left_out(
    deep: Path,
) -> None:
    long = "🚀" * 63  # as many bytes as a name can have
    (deep / long).write_text("x")
    (deep / ("ddd/" * 999) / "f").write_text("deep")
    saved = io.BytesIO()
    said = pack.pack(Workspace(deep), saved)
    assert "1003 members" in said
    assert "left out, since they could not be restored: 1 (" in said
    saved.seek(0)
    put(deep, saved, "again")
    assert (deep / "again" / ("ddd/" * 999) / "f").read_text() == "deep"
    assert (deep / "again" / long).exists()
