"""What a call did to the workspace's files, as its result says it."""

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.inside.history import History
from tests.hands.place import Place


def _told(history: History) -> dict[str, str]:
    changes = history.changes()
    assert not changes.keys() & {"files_unknown"}
    return {each["path"]: each["kind"] for each in changes.get("files", ())}


def test_a_look_tells_what_was_created_changed_and_removed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("as it was")
    (tmp_path / "edited").write_text("before")
    (tmp_path / "gone").write_text("soon")
    history = History(tmp_path)
    assert history.changes() == {}
    (tmp_path / "edited").write_text("after")
    (tmp_path / "gone").unlink()
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/new").write_bytes(b"\xff")
    assert history.changes() == {
        "files": [
            {
                "path": "deep/er/new",
                "kind": "created",
                "size": 1,
                "digest": hashlib.sha256(b"\xff").hexdigest(),
            },
            {
                "path": "edited",
                "kind": "changed",
                "size": 5,
                "digest": hashlib.sha256(b"after").hexdigest(),
            },
            {"path": "gone", "kind": "removed"},
        ],
        "files_omitted": 0,
    }
    assert history.changes() == {}


def test_a_change_within_the_clocks_grain_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "f"
    history = History(tmp_path)
    for number in range(50):  # as fast as can be, in place, of one size
        with file.open("wb") as same:
            same.write(b"%03d" % number)
        assert "f" in _told(history), number


def test_a_renamed_file_is_gone_from_one_path_and_new_at_another(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    history = History(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert _told(history) == {"a": "removed", "b": "created"}


def test_links_pipes_and_what_is_outside_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "w").mkdir()
    history = History(tmp_path / "w")
    (tmp_path / "w/link").symlink_to(tmp_path / "out")
    (tmp_path / "out/secret").write_text("x")
    os.mkfifo(tmp_path / "w/pipe")
    assert history.changes() == {}


def test_a_workspace_too_large_to_follow_is_unknown_not_unchanged(tmp_path: Path) -> None:
    history = History(tmp_path, entries=3)
    for number in range(4):
        (tmp_path / str(number)).touch()
    assert history.changes() == {"files_unknown": True}
    for number in range(4):
        (tmp_path / str(number)).unlink()
    assert history.changes() == {"files_unknown": True}, "what happened meanwhile is not known"


def test_many_changes_are_told_up_to_a_bound_and_the_rest_is_counted(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in range(1010):
        (tmp_path / f"{number:04}").touch()
    changes = history.changes()
    assert len(changes["files"]) == 1000
    assert changes["files_omitted"] == 10


async def test_a_result_says_which_files_its_call_changed(place: Place) -> None:
    hand = await place.hand()
    result = await place.sh(hand, "echo one > a; mkdir d; echo two > d/b")
    assert [(each.path, each.kind, each.size) for each in result.files] == [
        ("a", pb.FILE_CHANGE_KIND_CREATED, 4),
        ("d/b", pb.FILE_CHANGE_KIND_CREATED, 4),
    ]
    assert result.files[0].digest == hashlib.sha256(b"one\n").digest()
    assert not (await place.sh(hand, "cat a")).files
    gone = await place.sh(hand, "rm a; exit 3")
    assert [(each.path, each.kind) for each in gone.files] == [("a", pb.FILE_CHANGE_KIND_REMOVED)]


def test_contents_are_kept_by_their_digest_as_they_were_read(tmp_path: Path) -> None:
    workspace, keep = tmp_path / "w", tmp_path / "kept"
    workspace.mkdir()
    history = History(workspace, keep)
    (workspace / "a").write_bytes(b"one")
    (workspace / "same").write_bytes(b"one")
    changes = history.changes()
    assert [each["kept"] for each in changes["files"]] == [True, True]
    digest = hashlib.sha256(b"one").hexdigest()
    assert [(each.name, each.read_bytes()) for each in keep.iterdir()] == [(digest, b"one")]


def test_where_there_is_no_room_for_contents_that_is_said(tmp_path: Path) -> None:
    workspace, keep = tmp_path / "w", tmp_path / "kept"
    workspace.mkdir()
    keep.write_text("a file where the folder would be")
    history = History(workspace, keep)
    (workspace / "a").write_bytes(b"one")
    (told,) = history.changes()["files"]
    assert (told["kept"], told["digest"]) == (False, hashlib.sha256(b"one").hexdigest())


def test_contents_of_one_call_have_a_third_of_their_disk_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hand's own disk holds its output, its results and the shell's state as well."""
    workspace, keep = tmp_path / "w", tmp_path / "kept"
    workspace.mkdir()
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_blocks=9, f_frsize=1))
    history = History(workspace, keep)
    for _ in range(2):  # the next call has as much
        (workspace / "a").write_bytes(os.urandom(3))
        (workspace / "b").write_bytes(os.urandom(3))
        told = history.changes()["files"]
        assert [each["kept"] for each in told] == [True, False]
        assert all(each["digest"] for each in told)
