"""What a session mounts comes from sessiond through a brain to the hand, and is there at once."""

import hashlib
import io
import tarfile

from carpal.v1 import session_pb2, session_pb2_grpc, types_pb2
from tests.interaction.play import SECONDS, session
from tests.world import World

DATA = b"".join(b"line %d\n" % number for number in range(100_000))


async def put(stub: "session_pb2_grpc.SessionAsyncStub", data: bytes) -> str:
    info = types_pb2.BlobInfo(digest=hashlib.sha256(data).digest(), size=len(data))
    call = stub.PutBlob(timeout=SECONDS)
    for offset in range(0, len(data), 200_000):
        piece = data[offset : offset + 200_000]
        request = session_pb2.PutBlobRequest(offset=offset, data=piece)
        if not offset:
            request.info.CopyFrom(info)
        await call.write(request)
    await call.done_writing()
    await call
    return info.digest.hex()


async def test_what_a_session_mounts_is_in_its_hand_before_its_first_call(whole: World) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    async with whole.sessions() as stub:
        blob, packed = await put(stub, DATA), await put(stub, archive.getvalue())
    resources = ((f"blob:{blob}", "in/data"), (f"tar:{packed}", "."), ("text:hello", "note"))
    task = "$ tail -n 1 in/data; cat note; ls"
    async with session(whole, task, resources=resources) as made:
        await made.until_type("session.status_idle")
        (said,) = made.results()
        assert said == "line 99999\nhelloempty\nin\nnote\n"
        (asked,) = made.data("hand.provision_requested")
        assert asked["resources"] == [list(each) for each in resources]
        (provisioned,) = made.data("hand.provisioned")
        assert f"Mounted: in/data: {len(DATA)} bytes" in provisioned["note"]


async def test_a_mount_that_is_not_there_is_told_to_the_model_with_its_field(whole: World) -> None:
    resources = (("text:hello", "note"), ("blob:" + "0" * 64, "data"))
    async with session(whole, "$ true", resources=resources) as made:
        await made.until_type("session.status_idle")
        (said,) = made.results()
        assert "mounts[1] (data): no hand of session" in said or "no blob 0000" in said
        assert made.data("hand.provision_failed")[0]["reason"] == "MOUNT_NOT_FOUND"
