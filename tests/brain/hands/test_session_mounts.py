"""A `session:` mount is an archive that the brain makes and the log names."""

import io
import json
import tarfile
from typing import Any

import pytest

from brain.hands import log_archive
from brain.session.entries import New
from carpal.v1 import session_pb2, types_pb2
from tests.brain.stage import WAIT, Stage, create, emit


async def mounted(stage: Stage, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A call's result whose hand mounts a source, and the newest wish for a hand."""
    spec = {"type": "process", "resources": [["text:x", "note"], [source, "log"]]}
    await stage.driver.append(New("session.updated", {"hands": {"shell": spec}}))
    (told,) = await stage.settle(await stage.call())
    wishes = [d for d in await stage.datas() if "orphan_deadline" in d]
    return told, wishes[-1] if wishes else {}


async def files(stage: Stage, wish: dict[str, Any]) -> dict[str, bytes]:
    """The files of the archive that a wish names."""
    (kind, _, digest) = wish["resources"][1][0].partition(":")
    assert kind == "tar"
    stub = await stage.sessions.brain()
    asked = session_pb2.GetBlobRequest(digest=bytes.fromhex(digest), workspace="default")
    data = b"".join([piece.data async for piece in stub.GetBlob(asked, timeout=WAIT)])
    assert len(data) == wish["sessions"][0]["size"]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]


async def test_the_log_says_which_blob_and_which_session_up_to_where(driven: Stage) -> None:
    await create(driven.sessions, "sesn_2")
    told, wish = await mounted(driven, "session:sesn_2")
    assert told["outcome"] == "ok"
    assert wish["resources"][0] == ["text:x", "note"]
    (said,) = wish["sessions"]
    assert (said["path"], said["session_id"], said["from"], said["through"]) == (
        "log",
        "sesn_2",
        1,
        2,
    )
    (asked,) = driven.hands.asked_for("provision")
    assert asked.mounts[1].source_ref == wish["resources"][1][0], "to a daemon an archive"
    lines = (await files(driven, wish))["events.jsonl"].splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["session.updated", "user.message"]


async def test_a_session_mounts_its_own_log_up_to_where_it_was(driven: Stage) -> None:
    _, wish = await mounted(driven, "session:self")
    made = await files(driven, wish)
    last = json.loads(made["events.jsonl"].splitlines()[-1])
    assert last["type"] == "span.model_request_end"
    assert last["position"] == wish["sessions"][0]["through"]


async def test_a_part_of_a_log_is_mounted_by_its_positions(driven: Stage) -> None:
    _, wish = await mounted(driven, "session:self#2-3")
    about = json.loads((await files(driven, wish))["about.json"])
    assert (about["from"], about["through"], about["events"]) == (2, 3, 2)


@pytest.mark.parametrize("source", ["session:nowhere", "session:theirs"])
async def test_a_session_of_another_workspace_is_not_found_as_one_that_is_not_there(
    driven: Stage, source: str
) -> None:
    stub = await driven.sessions.operator("eve", "other")
    said = types_pb2.NewEvent(id="e", type="user.message", data=b"{}")
    request = session_pb2.CreateSessionRequest(session_id="theirs", events=[said])
    await stub.CreateSession(request, timeout=WAIT)
    told, wish = await mounted(driven, source)
    assert (told["outcome"], wish) == ("error", {})
    name = source[8:]
    assert f"mounts[1] (log): no session '{name}'" in told["content"][0]["text"]


async def test_a_part_beyond_the_head_and_a_log_too_large_are_refused_in_words(
    driven: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, _ = await mounted(driven, "session:self#900-")
    assert "mounts[1] (log): the log of sesn_1 ends at" in told["content"][0]["text"]
    monkeypatch.setattr(log_archive, "ARCHIVE_BYTES", 100)
    told, _ = await mounted(driven, "session:self")
    assert "mount a part of it: session:sesn_1#1-" in told["content"][0]["text"]


async def test_a_redacted_event_stays_redacted_in_a_mount(driven: Stage) -> None:
    say = {"content": [{"type": "text", "text": "swordfish"}]}
    await emit(driven.sessions, "sesn_1", "user.message", say)
    stub = await driven.sessions.operator()
    asked = session_pb2.RedactEventRequest(session_id="sesn_1", position=3, reason="secret")
    await stub.RedactEvent(asked, timeout=WAIT)
    _, wish = await mounted(driven, "session:self")
    made = await files(driven, wish)
    assert b"swordfish" not in b"".join(made.values())
    assert b"[redacted]" in made["conversation.md"]
