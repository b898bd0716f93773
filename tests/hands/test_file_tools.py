"""The file tools themselves, where a disk is full or files come and go meanwhile."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hands.inside import files, find
from hands.inside.beneath import ToolError, Workspace


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_has_no_room_leaves_what_the_file_had(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("all I know\n")
    given = {"file_path": "notes", "content": "more than fits\n" * 1000}
    with room_for(4096), pytest.raises(ToolError, match="notes"):
        files.write(Workspace(tmp_path), given)
    assert (tmp_path / "notes").read_text() == "all I know\n"


def test_an_edit_that_has_no_room_leaves_what_the_file_had(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("all I know\n")
    given = {"file_path": "notes", "old_string": "know", "new_string": "know, and more " * 1000}
    with room_for(4096), pytest.raises(ToolError, match="notes"):
        files.edit(Workspace(tmp_path), given)
    assert (tmp_path / "notes").read_text() == "all I know\n"


def test_a_file_that_goes_while_it_is_looked_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("goes", "stays"):
        (tmp_path / name).write_text("")

    def fits(_: object, names: list[str]) -> bool:
        if names == ["goes"]:
            (tmp_path / "goes").unlink()
        return True

    monkeypatch.setattr(find, "_fits", fits)
    assert find.glob(Workspace(tmp_path), {"pattern": "*"}) == "stays"
