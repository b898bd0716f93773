"""`carpal session files`: what the log says of files, at any position."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpal.operator.files import Files, _line
from carpal.operator.files_out import File
from carpal.v1 import session_pb2, types_pb2
from tests.command import Command
from tests.operator.real import SESSION, create, real_sessiond
from tests.sessiond.serving import Serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A sessiond."""
    async with real_sessiond(tmp_path) as server:
        yield server


def change(path: str, kind: str = "created", **more: Any) -> dict[str, Any]:
    return {"path": path, "kind": kind, **more}


def result(hand_id: str, *files: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"hand_id": hand_id, "files": list(files), **more}


EVENTS = [
    ("hand.provisioned", {"hand_id": "h1", "name": "shell"}),
    ("agent.tool_result", result("h1", change("a", size=1, sha256="aa"), change("b", size=2))),
    ("agent.tool_result", result("h1", change("a", "changed", size=3, sha256="cc"))),
    ("agent.tool_result", result("h1", change("a", "removed"))),
    ("hand.provisioned", {"hand_id": "h2", "name": "other"}),
    ("hand.late_result", result("h2", change("a", size=4, sha256="dd"), files_omitted=7)),
]


def folded(up_to: int) -> list[tuple[str, str, int, int]]:
    files = Files()
    for position, (kind, data) in enumerate(EVENTS[:up_to], start=1):
        files.take(kind, position, data)
    return [(file.hand, file.path, file.size, file.position) for file in files]


def test_files_are_as_they_were_at_a_position() -> None:
    assert folded(1) == []
    assert folded(2) == [("shell", "a", 1, 2), ("shell", "b", 2, 2)]
    assert folded(3) == [("shell", "a", 3, 3), ("shell", "b", 2, 2)]
    assert folded(4) == [("shell", "b", 2, 2)]
    assert folded(6) == [("shell", "b", 2, 2), ("other", "a", 4, 6)]


@pytest.mark.parametrize("files", [None, 3, "x", [3], [{}], [{"path": 5, "size": "x"}]])
def test_data_of_any_shape_is_no_fault(files: object) -> None:
    known = Files()
    known.take("agent.tool_result", 1, {"hand_id": "h", "files": files})
    for _ in known:
        pass


async def test_the_command_lists_them_and_says_where_the_log_has_gaps(
    server: Serving, carpal: Command
) -> None:
    await create(server)
    told = await carpal("session", "show", SESSION, "--json")
    before = json.loads(told.stdout)["head"]
    brain = await server.brain("b")
    lease = (
        await brain.AcquireLease(session_pb2.AcquireLeaseRequest(resource=f"session/{SESSION}"))
    ).lease
    for number, (kind, data) in enumerate(EVENTS):
        event = types_pb2.NewEvent(id=f"f{number}", type=kind, data=json.dumps(data).encode())
        request = session_pb2.EmitEventRequest(session_id=SESSION, event=event, epoch=lease.epoch)
        await brain.EmitEvent(request)
    ended = await carpal("session", "files", SESSION, "--json", "--at", str(before + 3))
    assert [json.loads(line)["path"] for line in ended.stdout.splitlines()] == ["a", "b"]
    assert json.loads(ended.stdout.splitlines()[0]) == {
        "hand_id": "h1",
        "hand": "shell",
        "path": "a",
        "size": 3,
        "sha256": "cc",
        "position": before + 3,
        "kept": False,
    }
    ended = await carpal("session", "files", SESSION, "--hand", "other")
    assert ended.stdout == "dd                     4  other:a\n"
    assert ended.stderr == (
        "carpal: other: not every change is in the log from position "
        f"{before + 6} on: too many files\n"
    )
    nobody = await carpal("session", "files", SESSION, "--hand", "nope")
    assert nobody.code == 2
    assert "no hand 'nope' by then; it had other, shell" in nobody.stderr
    beyond = await carpal("session", "files", SESSION, "--at", "999")
    assert beyond.code == 2
    assert "--at 999 is beyond the log" in beyond.stderr


_PATHS = ("deep/a", "", ".", "../out", "/abs", "a\0b", "deep/a/b", "x" * 300, "\ud800")


async def test_kept_contents_are_written_to_a_new_folder_and_nowhere_else(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await create(server)
    brain = await server.brain("b")
    content = b"made by a call"
    digest = hashlib.sha256(content)
    info = types_pb2.BlobInfo(digest=digest.digest(), size=len(content))
    put = session_pb2.PutBlobRequest(info=info, workspace="default", data=content)
    await brain.PutBlob(iter([put]))
    lease = (
        await brain.AcquireLease(session_pb2.AcquireLeaseRequest(resource=f"session/{SESSION}"))
    ).lease
    kept: dict[str, Any] = {
        "size": len(content),
        "sha256": digest.hexdigest(),
        "blob": f"sha256:{digest.hexdigest()}",
    }
    changes = [change(path, **kept) for path in _PATHS]
    changes.append(change("lost", size=1, sha256="ee"))
    for number, (kind, data) in enumerate(
        [EVENTS[0], ("agent.tool_result", result("h1", *changes))]
    ):
        event = types_pb2.NewEvent(id=f"f{number}", type=kind, data=json.dumps(data).encode())
        request = session_pb2.EmitEventRequest(session_id=SESSION, event=event, epoch=lease.epoch)
        await brain.EmitEvent(request)
    out = tmp_path / "out"
    ended = await carpal("session", "files", SESSION, "--out", str(out))
    assert ended.code == 0, ended.stderr
    found = [path for path in tmp_path.joinpath("out").rglob("*") if path.is_file()]
    assert found == [out / "shell/deep/a"]
    assert found[0].read_bytes() == content
    assert "1 files in" in ended.stderr
    assert "9 without their contents" in ended.stderr
    again = await carpal("session", "files", SESSION, "--out", str(out))
    assert again.code == 2
    assert "is there; name a new folder" in again.stderr


def test_a_path_is_one_line_of_a_listing_and_no_word_to_the_terminal() -> None:
    path = "a\x1b]0;title\x07\x1b[31m\nb\u202e\ud800"
    file = File("h1", "she\nll", path, 1, "\x1b" * 12, 2, kept=False)
    line = _line(file, as_json=False)
    assert line.isprintable()
    assert line.endswith("she\\x0all:a\\x1b]0;title\\x07\\x0ab\\u202e\\ud800")
