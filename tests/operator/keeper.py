"""A sessiond in memory that can be told to misbehave, on a real server."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import session_pb2_grpc, types_pb2
from carpal.verified import Verified


class Keeper(session_pb2_grpc.SessionServicer):
    """What `export` and `import` ask of a sessiond."""

    def __init__(self) -> None:
        self.sessions: dict[str, types_pb2.SessionInfo] = {}
        self.logs: dict[str, list[types_pb2.Event]] = {}
        self.blobs: dict[bytes, tuple[types_pb2.BlobInfo, bytes]] = {}
        self.frames: list[tuple[int, int]] = []
        """Bytes and events of each message of an import."""
        self.blobs_before_last_frame = 0
        self.refusal: CarpalError | None = None
        """Answered to the first message of an import."""
        self.short = False
        """Blobs are cut short, both ways."""

    def find(self, session_id: str) -> types_pb2.SessionInfo:
        """The session, or its refusal."""
        if session_id not in self.sessions:
            raise refuse(Reason.SESSION_NOT_FOUND, f"no session {session_id!r}")
        return self.sessions[session_id]

    async def GetSession(self, request: Any, context: Any) -> Any:
        return pb.GetSessionResponse(session=self.find(request.session_id))

    async def GetEvents(self, request: Any, context: Any) -> Any:
        self.find(request.session_id)
        events = self.logs[request.session_id][request.after :][: min(request.limit, 7)]
        return pb.GetEventsResponse(events=events)

    async def ImportSession(self, request_iterator: Any, context: Any) -> Any:
        info = types_pb2.SessionInfo()
        events: list[types_pb2.Event] = []
        async for request in request_iterator:
            if self.refusal:
                raise self.refusal
            if not info.session_id:
                info.CopyFrom(request.session)
                info.workspace = info.workspace or "default"
            known = self.sessions.get(info.session_id)
            if known and known.head == info.head:
                return pb.ImportSessionResponse(session=known)
            self.frames.append((request.ByteSize(), len(request.events)))
            self.blobs_before_last_frame = len(self.blobs)
            events += request.events
        if not info.session_id or len(events) < info.head.position:
            raise refuse(Reason.INVALID_FIELD, "the last event has not come")
        verified = Verified(info.chain_id)
        for event in events:
            verified.take(event)
        info.head.position, info.head.hash = verified.position, verified.hash
        info.imported_to = verified.position
        known = self.sessions.get(info.session_id)
        if known and known.head != info.head:
            raise refuse(Reason.ID_REUSED, f"{info.session_id} exists with another log")
        self.sessions[info.session_id], self.logs[info.session_id] = info, events
        return pb.ImportSessionResponse(session=info)

    async def PutBlob(self, request_iterator: Any, context: Any) -> Any:
        info, data = types_pb2.BlobInfo(), b""
        async for request in request_iterator:
            if not info.digest:
                info.CopyFrom(request.info)
            if info.digest in self.blobs:
                return pb.PutBlobResponse(info=info, offset=info.size)
            assert request.offset == len(data)
            data += request.data
        if self.short:
            return pb.PutBlobResponse(info=info, offset=len(data) // 2)
        assert sha256(data).digest() == info.digest
        self.blobs[info.digest] = info, data
        return pb.PutBlobResponse(info=info, offset=len(data))

    async def GetBlob(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if request.digest not in self.blobs:
            raise refuse(Reason.BLOB_NOT_FOUND, "no such blob")
        info, data = self.blobs[request.digest]
        yield pb.GetBlobResponse(info=info)
        data = data[: len(data) // 2] if self.short else data
        for at in range(0, len(data), 200_000):
            yield pb.GetBlobResponse(offset=at, data=data[at : at + 200_000])
