"""A session's files, by its log alone, once its hand is long gone."""

from carpal.v1 import session_pb2
from tests.interaction.play import SECONDS, session
from tests.world import World


async def test_what_each_call_made_of_a_file_is_a_blob_that_its_result_names(whole: World) -> None:
    task = "$ echo one > a\n$ echo two > a; rm -f b"
    async with session(whole, task, keep_files=True) as made:
        await made.until_type("session.status_idle")
        first, second = made.data("agent.tool_result")
        contents = []
        for (change,) in (first["files"], second["files"]):
            assert change["path"] == "a"
            assert change["blob"] == f"sha256:{change['sha256']}"
            request = session_pb2.GetBlobRequest(
                digest=bytes.fromhex(change["sha256"]), workspace="default"
            )
            answers = [answer async for answer in made.stub.GetBlob(request, timeout=SECONDS)]
            contents.append(b"".join(answer.data for answer in answers))
        assert [each["kind"] for each in (*first["files"], *second["files"])] == [
            "created",
            "changed",
        ]
        assert contents == [b"one\n", b"two\n"]
