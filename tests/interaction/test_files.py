"""A session's files, by its log alone, once its hand is long gone."""

import base64
import hashlib
import json
from pathlib import Path

from carpal.export import blobs_named
from carpal.v1 import session_pb2, session_pb2_grpc
from tests.interaction.play import SECONDS, session
from tests.png import png
from tests.world import World, world


async def test_what_each_call_made_of_a_file_is_a_blob_that_its_result_names(whole: World) -> None:
    task = "$ echo one > a\n$ echo two > a; rm -f b"
    async with session(whole, task, keep_files=True) as made:
        await made.until_type("session.status_idle")
        first, second = made.data("agent.tool_result")
        contents = []
        for (change,) in (first["files"], second["files"]):
            assert change["path"] == "a"
            assert change["blob"] == f"sha256:{change['sha256']}"
            contents.append(await _blob(made.stub, bytes.fromhex(change["sha256"])))
        assert [each["kind"] for each in (*first["files"], *second["files"])] == [
            "created",
            "changed",
        ]
        assert contents == [b"one\n", b"two\n"]


async def test_a_picture_that_was_read_is_a_blob_that_its_result_names_h46(tmp_path: Path) -> None:
    picture = png()
    make = f"base64 -d <<< {base64.b64encode(picture).decode()} > shot.png"
    turns = [
        {"tools": [{"name": "bash", "input": {"command": make}}]},
        {"tools": [{"name": "read", "input": {"file_path": "shot.png"}}]},
        {"text": "I see."},
    ]
    script = tmp_path / "look.yaml"
    script.write_text(json.dumps({"match": "look", "turns": turns}))
    async with (
        world(tmp_path / "state", scripts=(script,)) as it,
        session(it, "look") as made,
    ):
        await made.until_type("session.status_idle")
        _, read = made.data("agent.tool_result")
        digest = hashlib.sha256(picture).digest()
        assert read["attachments"] == [
            {
                "blob": f"sha256:{digest.hex()}",
                "media_type": "image/png",
                "size": len(picture),
                "name": "shot.png",
            }
        ]
        (block,) = read["content"]
        assert block["text"].startswith(f"[image/png, {len(picture)} bytes, sha256 {digest.hex()}")
        assert await _blob(made.stub, digest) == picture
        assert list(blobs_named(json.dumps(read).encode())) == [digest], "an export takes it along"


async def _blob(stub: "session_pb2_grpc.SessionAsyncStub", digest: bytes) -> bytes:
    request = session_pb2.GetBlobRequest(digest=digest, workspace="default")
    answers = [answer async for answer in stub.GetBlob(request, timeout=SECONDS)]
    return b"".join(answer.data for answer in answers)
