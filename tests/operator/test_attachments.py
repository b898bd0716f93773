"""`carpal session attachments` and `show`: what results have attached, listed and saved safely."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpal.operator.attachment_rows import Attached, attached
from carpal.v1 import session_pb2, types_pb2
from tests.command import Command
from tests.operator.real import SESSION, create, events_of, lines, real_sessiond
from tests.png import png
from tests.sessiond.serving import Serving

PICTURE = png()
GONE = b"never put"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A sessiond."""
    async with real_sessiond(tmp_path) as server:
        yield server


def told(data: bytes = PICTURE, name: str = "shot.png", kind: str = "image/png") -> dict[str, Any]:
    """An attachment as the log has it."""
    blob = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"blob": blob, "media_type": kind, "size": len(data), "name": name}


async def with_results(server: Serving, *results: list[dict[str, Any]]) -> list[int]:
    """A session with results that have these attached; the results' positions."""
    await create(server)
    brain = await server.brain("b")
    info = types_pb2.BlobInfo(digest=hashlib.sha256(PICTURE).digest(), size=len(PICTURE))
    put = session_pb2.PutBlobRequest(info=info, workspace="default", data=PICTURE)
    await brain.PutBlob(iter([put]))
    asked = session_pb2.AcquireLeaseRequest(resource=f"session/{SESSION}")
    lease = (await brain.AcquireLease(asked)).lease
    for number, given_ in enumerate(results):
        data = json.dumps({"hand_id": "h1", "attachments": given_}).encode()
        event = types_pb2.NewEvent(id=f"r{number}", type="agent.tool_result", data=data)
        request = session_pb2.EmitEventRequest(session_id=SESSION, event=event, epoch=lease.epoch)
        await brain.EmitEvent(request)
    return [each.position for each in await events_of(server) if each.id.startswith("r")]


async def test_they_are_listed_shown_and_saved_under_names_of_their_own(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    first, second = await with_results(
        server, [told(), told(name="../../etc/passwd")], [told(GONE), told(name="shot.png")]
    )
    listed = lines((await carpal("session", "attachments", SESSION, "--json")).stdout)
    assert [(row["position"], row["number"]) for row in listed] == [
        *((first, 1), (first, 2)),
        *((second, 1), (second, 2)),
    ]
    assert listed[0] == {
        "position": first,
        "number": 1,
        "hand_id": "h1",
        "name": "shot.png",
        "media_type": "image/png",
        "size": len(PICTURE),
        "blob": told()["blob"],
        "file": None,
    }
    shown = await carpal("session", "show", SESSION)
    rows = [row for row in shown.stdout.splitlines() if row.startswith("attached")]
    copy = tmp_path / "cache/carpal/pictures" / SESSION / f"{first}-1-shot.png"
    said = f"shot.png, image/png, {len(PICTURE)} bytes"
    assert rows[0] == f"attached at {first}  {said}  {copy.as_uri()}"
    assert rows[2].endswith(told(GONE)["blob"]), "of what is not there there is no link"
    assert len(rows) == 4
    assert f"carpal session attachments {SESSION} --out DIR" in shown.stdout
    out = tmp_path / "out"
    ended = await carpal("session", "attachments", SESSION, "--out", str(out), "--json")
    assert ended.code == 0, ended.stderr
    names = [f"{first}-1-shot.png", f"{first}-2-passwd.png", f"{second}-2-shot.png"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert {path.read_bytes() for path in out.iterdir()} == {PICTURE}
    saved = [row["file"] for row in lines(ended.stdout)]
    assert saved == [str(out / names[0]), str(out / names[1]), None, str(out / names[2])]
    assert "3 files in" in ended.stderr
    assert "1 are in the store no more" in ended.stderr
    again = await carpal("session", "attachments", SESSION, "--out", str(out))
    assert again.code == 2
    assert "is there; name a new folder" in again.stderr


async def test_the_link_of_a_picture_leads_to_its_copy_and_that_goes_with_what_is_erased(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    page = told(b"<script>", "page.html", "text/html")
    first, second = await with_results(server, [told(), page], [told(name="other")])
    shown = await carpal("session", "show", SESSION)
    links = [word for word in shown.stdout.split() if word.startswith("file:")]
    files = [Path(link.removeprefix("file://")) for link in links]
    assert [path.name for path in files] == [f"{first}-1-shot.png", f"{second}-1-other.png"]
    assert {path.read_bytes() for path in files} == {PICTURE}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    folder = files[0].parent
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "7-1-older.png").write_bytes(b"of before")
    again = await carpal("session", "show", SESSION)
    assert again.stdout == shown.stdout
    assert sorted(folder.iterdir()) == sorted(files), "what the newest have no more is removed"
    ended = await carpal("session", "redact", SESSION, str(first), "--reason", "private")
    assert ended.code == 0, ended.stderr
    assert not list(folder.iterdir())
    await carpal("session", "show", SESSION)
    assert [path.name for path in folder.iterdir()] == [f"{second}-1-other.png"]


async def test_where_no_copy_can_be_made_the_line_names_the_blob(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await with_results(server, [told()])
    (tmp_path / "cache").write_text("a file")
    shown = await carpal("session", "show", SESSION)
    assert shown.code == 0, shown.stderr
    assert told()["blob"] in shown.stdout
    assert "file:" not in shown.stdout


async def test_of_one_position_only_its_own_are_told(server: Serving, carpal: Command) -> None:
    first, second = await with_results(server, [told()], [told(), told(name="b")])
    ended = await carpal("session", "attachments", SESSION, "--at", str(first), "--json")
    assert [row["position"] for row in lines(ended.stdout)] == [first]
    none = await carpal("session", "attachments", SESSION, "--at", "1")
    assert (none.stdout, none.code) == ("", 0)
    assert "nothing is attached at position 1" in none.stderr
    beyond = await carpal("session", "attachments", SESSION, "--at", str(second + 1))
    assert beyond.code == 2
    assert "is beyond the log" in beyond.stderr


async def test_those_of_a_redacted_event_are_not_given_out(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    first, second = await with_results(server, [told()], [told(name="other")])
    ended = await carpal("session", "redact", SESSION, str(first), "--reason", "private")
    assert ended.code == 0, ended.stderr
    out = tmp_path / "out"
    ended = await carpal("session", "attachments", SESSION, "--out", str(out))
    assert [path.name for path in out.iterdir()] == [f"{second}-1-other.png"]
    shown = json.loads((await carpal("session", "show", SESSION, "--json")).stdout)
    assert [row["position"] for row in shown["attachments"]] == [second]


async def test_that_the_blobs_of_a_redacted_event_stay_is_said_with_their_digests(
    server: Serving, carpal: Command
) -> None:
    """Another session may name them, and sessiond reads no event."""
    (position,) = await with_results(server, [told()])
    blob = told()["blob"]
    ended = await carpal("session", "redact", SESSION, str(position), "--reason", "private")
    assert ended.code == 0, ended.stderr
    assert f"what it attached stays in the store, to who knows its digest: {blob}" in ended.stderr


@given(st.text(), st.sampled_from(["image/png", "text/html", "", "image/jpeg"]))
def test_whatever_a_hand_calls_it_its_file_is_one_in_the_folder(name: str, kind: str) -> None:
    each = Attached(7, 1, "h1", name, kind, 3, told()["blob"])
    file = each.file_name()
    assert file.startswith("7-1-")
    assert len(file) <= 120
    assert file.isascii()
    assert file.isprintable()
    assert Path(file).name == file
    assert not set(file) & set("/\\:*?\"<>| '`$")
    assert each.text().isprintable()


@pytest.mark.parametrize(
    ("name", "kind", "file"),
    [
        ("shot.png", "image/png", "7-1-shot.png"),
        ("SHOT.PNG", "image/png", "7-1-SHOT.PNG"),
        ("run.sh", "image/jpeg", "7-1-run.sh.jpg"),
        ("a.jpeg", "image/jpeg", "7-1-a.jpeg"),
        ("", "image/gif", "7-1-attachment.gif"),
        ("..", "text/plain", "7-1-attachment"),
        ("C:\\tmp\\page one.pdf", "application/pdf", "7-1-page_one.pdf"),
        (".bashrc", "text/plain", "7-1-bashrc"),
    ],
)
def test_a_file_is_called_as_its_kind_says(name: str, kind: str, file: str) -> None:
    assert Attached(7, 1, "h1", name, kind, 3, told()["blob"]).file_name() == file


@pytest.mark.parametrize(
    "given_", [None, 3, "x", [3], [{}], [{"blob": "sha256:x"}], [{"blob": 5, "size": "x"}]]
)
def test_data_of_any_shape_is_no_fault(given_: object) -> None:
    data = json.dumps({"attachments": given_}).encode()
    assert not list(attached([types_pb2.Event(type="agent.tool_result", data=data)]))
