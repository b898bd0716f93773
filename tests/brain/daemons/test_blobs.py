"""Blobs through a brain: a daemon sees what a hand on it mounts, and nothing else."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from brain.session.entries import New
from carpal.client import held, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import orchestrator_pb2_grpc, session_pb2, types_pb2
from tests.brain.serving import Brain, brain
from tests.brain.stage import WAIT, Stage

DATA = bytes(range(256)) * 2048  # more than one piece
DIGEST = hashlib.sha256(DATA).digest()


@pytest.fixture
async def at(driven: Stage) -> AsyncIterator[Brain]:
    """A brain, before the sessiond of the driven session."""
    async with brain(driven.sessions, "brain-2") as serving:
        yield serving


async def _put(driven: Stage) -> None:
    call = (await driven.sessions.operator()).PutBlob(timeout=WAIT)
    info = types_pb2.BlobInfo(digest=DIGEST, size=len(DATA), media_type="a/b")
    await call.write(session_pb2.PutBlobRequest(info=info, data=DATA[:1024]))
    await call.write(session_pb2.PutBlobRequest(offset=1024, data=DATA[1024:200_000]))
    await call.write(session_pb2.PutBlobRequest(offset=200_000, data=DATA[200_000:400_000]))
    await call.write(session_pb2.PutBlobRequest(offset=400_000, data=DATA[400_000:]))
    await call.done_writing()
    await call


async def _mounts(driven: Stage, daemon: str = "d1", hand_id: str = "hand_1") -> None:
    asked = {
        "hand_id": hand_id,
        "name": "shell",
        "type": "process",
        "daemon": daemon,
        "orphan_deadline": 60.0,
        "resources": [[f"blob:{DIGEST.hex()}", "data"]],
    }
    await driven.driver.append(New("hand.provision_requested", asked))


async def _read(at: Brain, name: str = "d1", workspace: str = "", **asked: Any) -> bytes:
    request = pb.ReadBlobRequest(**{"session_id": "sesn_1", "digest": DIGEST, **asked})
    async with at.asked_by(Role.DAEMON, name, workspace) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        with rpc_errors("the brain"), held(stub.ReadBlob(request, timeout=WAIT)) as stream:
            pieces = [piece async for piece in stream]
    assert pieces[0].info.size == len(DATA)
    assert pieces[0].offset == request.offset
    return b"".join(piece.data for piece in pieces)


async def _refused(reading: Any) -> CarpalError:
    with pytest.raises(CarpalError) as caught:
        await reading
    return caught.value


async def test_a_daemon_reads_a_blob_that_a_hand_on_it_mounts_from_any_offset(
    driven: Stage, at: Brain
) -> None:
    await _put(driven)
    await _mounts(driven)
    assert await _read(at) == DATA
    assert await _read(at, offset=300_001) == DATA[300_001:]


async def test_a_daemon_reads_no_blob_that_none_of_the_sessions_hands_on_it_mounts(
    driven: Stage, at: Brain
) -> None:
    await _put(driven)
    assert (await _refused(_read(at))).reason is Reason.BLOB_NOT_FOUND
    await _mounts(driven, daemon="d2")
    assert (await _refused(_read(at))).reason is Reason.BLOB_NOT_FOUND
    assert (await _refused(_read(at, session_id="sesn_9"))).reason is Reason.BLOB_NOT_FOUND
    await _mounts(driven)
    other = bytes(32)
    assert (await _refused(_read(at, digest=other))).reason is Reason.BLOB_NOT_FOUND
    elsewhere = _read(at, workspace="other")
    assert (await _refused(elsewhere)).reason is Reason.BLOB_NOT_FOUND


async def _calls(driven: Stage, **given: Any) -> None:
    call = {"name": "load", "input": given, "hand_id": "hand_1"}
    await driven.driver.append(New("agent.tool_use", call))


async def _attached(driven: Stage, blob: Any) -> None:
    attached = [7, {"blob": blob, "media_type": "a/b", "size": len(DATA), "name": "x"}]
    await driven.driver.append(New("agent.tool_result", {"attachments": attached}))


async def test_a_daemon_reads_what_a_result_attached_once_a_call_names_it(
    driven: Stage, at: Brain
) -> None:
    await _put(driven)
    asked = {"hand_id": "hand_1", "type": "process", "daemon": "d1", "resources": []}
    await driven.driver.append(New("hand.provision_requested", asked))
    await _calls(driven, state=DIGEST.hex())
    assert (await _refused(_read(at))).reason is Reason.BLOB_NOT_FOUND, "nothing attached it"
    await _attached(driven, f"sha256:{DIGEST.hex()}")
    assert await _read(at, offset=5) == DATA[5:]
    assert (await _refused(_read(at, name="d2"))).reason is Reason.BLOB_NOT_FOUND


async def test_a_daemon_reads_nothing_attached_that_no_call_names(driven: Stage, at: Brain) -> None:
    await _put(driven)
    asked = {"hand_id": "hand_1", "type": "process", "daemon": "d1", "resources": []}
    await driven.driver.append(New("hand.provision_requested", asked))
    await _attached(driven, f"sha256:{DIGEST.hex()}")
    await _calls(driven, text=f"not {DIGEST.hex()} alone")
    assert (await _refused(_read(at))).reason is Reason.BLOB_NOT_FOUND


async def test_a_daemon_reads_nothing_any_more_once_the_hand_ended(
    driven: Stage, at: Brain
) -> None:
    await _put(driven)
    await _mounts(driven)
    await driven.driver.append(New("hand.released", {"hand_id": "hand_1", "name": "shell"}))
    assert (await _refused(_read(at))).reason is Reason.BLOB_NOT_FOUND


async def _write(at: Brain, data: bytes, *, session_id: str = "sesn_1") -> pb.WriteBlobResponse:
    info = types_pb2.BlobInfo(digest=DIGEST, size=len(DATA), media_type="application/x-tar")

    async def pieces() -> AsyncIterator[pb.WriteBlobRequest]:
        yield pb.WriteBlobRequest(session_id=session_id, info=info)
        for offset in range(0, len(data), 200_000):
            yield pb.WriteBlobRequest(offset=offset, data=data[offset : offset + 200_000])

    async with at.asked_by(Role.DAEMON, "d1") as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        call: grpc.aio.StreamUnaryCall[Any, pb.WriteBlobResponse]
        call = stub.WriteBlob(pieces(), timeout=WAIT)
        with rpc_errors("the brain"):
            return await call


async def test_a_daemon_writes_a_blob_for_a_session_that_has_a_hand_on_it(
    driven: Stage, at: Brain
) -> None:
    assert (await _refused(_write(at, DATA))).reason is Reason.SESSION_NOT_FOUND
    await _mounts(driven)
    answer = await _write(at, DATA)
    assert (answer.offset, answer.info.digest) == (len(DATA), DIGEST)
    assert await _read(at) == DATA
    again = await _write(at, b"")
    assert again.offset == len(DATA), "it is there: nothing need be sent"


async def test_bytes_that_do_not_have_the_digest_are_refused_as_sessiond_refuses_them(
    driven: Stage, at: Brain
) -> None:
    await _mounts(driven)
    error = await _refused(_write(at, DATA[:-1] + b"?"))
    assert error.reason is Reason.DIGEST_MISMATCH
