"""`carpal session save`: asked for in the log, and answered by it; and `blob`, which writes out."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import session_pb2, session_pb2_grpc, types_pb2
from tests.command import SECONDS, Command, Ended
from tests.operator.real import SESSION, create, events_of, real_sessiond
from tests.sessiond.serving import Serving

CONTENT = b"an archive"
DIGEST = hashlib.sha256(CONTENT)
SAVED = {"hand_id": "h1", "name": "shell", "size": len(CONTENT), "said": "x.tar (1 member)"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A sessiond."""
    async with real_sessiond(tmp_path) as server:
        await create(server)
        yield server


async def put(server: Serving) -> None:
    """The archive as a blob."""
    info = types_pb2.BlobInfo(digest=DIGEST.digest(), size=len(CONTENT))
    request = session_pb2.PutBlobRequest(info=info, workspace="default", data=CONTENT)
    await (await server.brain("b")).PutBlob(iter([request]))


async def answered(
    server: Serving, command: asyncio.Task[Ended], kind: str, data: dict[str, Any]
) -> tuple[dict[str, Any], Ended]:
    """What was asked for, and how the command ended once a driver had answered."""
    brain = await server.brain("b")
    asked = await _asked(brain)
    lease = (
        await brain.AcquireLease(session_pb2.AcquireLeaseRequest(resource=f"session/{SESSION}"))
    ).lease
    for number, save_id in enumerate(("anothers", asked.id)):
        body = json.dumps({"save_id": save_id, **data}).encode()
        event = types_pb2.NewEvent(id=f"answer{number}", type=kind, data=body)
        request = session_pb2.EmitEventRequest(session_id=SESSION, event=event, epoch=lease.epoch)
        await brain.EmitEvent(request)
    return json.loads(asked.data), await command


async def _asked(brain: "session_pb2_grpc.SessionAsyncStub") -> types_pb2.Event:
    cursor = types_pb2.TailCursor(session_id=SESSION)
    tail = brain.TailEvents(session_pb2.TailEventsRequest(cursors=[cursor]), timeout=SECONDS)
    async for answer in tail:
        for event in answer.events:
            if event.type == "user.save":
                tail.cancel()
                return event
    raise AssertionError("nothing was asked for")


async def test_it_prints_what_mounts_the_workspace_and_writes_the_archive(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await put(server)
    out = tmp_path / "w.tar"
    words = ("session", "save", SESSION, "--hand", "shell", "--out", str(out), "--json")
    data = SAVED | {"blob": f"sha256:{DIGEST.hexdigest()}"}
    asked, ended = await answered(server, asyncio.create_task(carpal(*words)), "hand.saved", data)
    assert asked == {"hand": "shell"}
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == {
        "session_id": SESSION,
        "hand_id": "h1",
        "hand": "shell",
        "source": f"tar:{DIGEST.hexdigest()}",
        "size": len(CONTENT),
        "said": "x.tar (1 member)",
    }
    assert out.read_bytes() == CONTENT


async def test_an_archive_that_is_not_there_leaves_no_file(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    out = tmp_path / "w.tar"
    command = asyncio.create_task(carpal("session", "save", SESSION, "--out", str(out)))
    data = SAVED | {"blob": f"sha256:{'0' * 64}"}
    asked, ended = await answered(server, command, "hand.saved", data)
    assert asked == {}
    assert ended.code == 5, ended
    assert not out.exists()


async def test_why_there_is_none_is_said(server: Serving, carpal: Command) -> None:
    command = asyncio.create_task(carpal("session", "save", SESSION))
    data = {"name": "shell", "reason": "HAND_NOT_FOUND", "message": "there is no live hand"}
    _, ended = await answered(server, command, "hand.save_failed", data)
    assert (ended.code, ended.stdout) == (1, "")
    assert "not saved: there is no live hand" in ended.stderr


async def test_wrong_use_sends_nothing(server: Serving, carpal: Command, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for out, said in (("there", "is there"), ("none/w.tar", "make it first")):
        ended = await carpal("session", "save", SESSION, "--out", str(tmp_path / out))
        assert ended.code == 2
        assert said in ended.stderr
    assert (await carpal("session", "save", "sesn_none")).code == 5
    assert not [e for e in await events_of(server) if e.type == "user.save"]


@pytest.mark.parametrize("name", ["sha256:", "tar:", ""])
async def test_a_blob_is_written_out_by_its_name(
    server: Serving, carpal: Command, tmp_path: Path, name: str
) -> None:
    await put(server)
    blob, out = f"{name}{DIGEST.hexdigest()}", tmp_path / "b"
    assert (await carpal("session", "blob", blob, "--out", str(out))).code == 0
    assert out.read_bytes() == CONTENT
    assert (await carpal("session", "blob", blob, "--out", "-")).stdout == CONTENT.decode()
    again = await carpal("session", "blob", blob, "--out", str(out))
    assert (again.code, out.read_bytes()) == (2, CONTENT)


async def test_a_blob_that_is_none_leaves_no_file(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    out = tmp_path / "b"
    for blob, code, said in (("0" * 64, 5, "no blob"), ("sha256:12", 2, "BLOB: must be")):
        ended = await carpal("session", "blob", blob, "--out", str(out))
        assert ended.code == code, ended
        assert said in ended.stderr
        assert not out.exists()
