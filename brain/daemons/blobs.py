"""Blobs for daemons, which do not reach sessiond: read and written through this brain.

The log decides what a daemon may see: a session has a hand on it, and to read,
one of the session's hands there mounts that very blob, or a call of the session
names it that a result of the same log has attached. Nothing else is open to it,
however it asks.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from brain.session.log import entry_of
from carpal.client import held, rpc_errors
from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity
from carpal.mounts import digest_of
from carpal.status import Reason
from carpal.upload import Upload
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import session_pb2, session_pb2_grpc, types_pb2

_REQUESTED = "hand.provision_requested"
_ENDED = ("hand.provision_failed", "hand.lost", "hand.released")
_CALL, _RESULT = "agent.tool_use", "agent.tool_result"
_STORE_LIMIT = 10.0
"""Seconds sessiond has for a slice of a log."""


class BlobRelay:
    """ReadBlob and WriteBlob."""

    def __init__(self, sessions: "session_pb2_grpc.SessionAsyncStub") -> None:
        self._sessions = sessions

    async def read(
        self, request: pb.ReadBlobRequest, daemon: Identity
    ) -> AsyncGenerator[pb.ReadBlobResponse, None]:
        """The blob's bytes from an offset on. BLOB_NOT_FOUND unless a hand there mounts it."""
        hands = await self._hands(request.session_id, daemon)
        open_to_it = any(request.digest in _mounted(hand) for hand in hands)
        if not open_to_it and not (hands and await self._named(request)):
            raise refuse(
                Reason.BLOB_NOT_FOUND,
                f"no hand of session {request.session_id!r} on this daemon mounts "
                f"the blob {request.digest.hex()}, and no call names it that a result attached",
                digest=request.digest.hex(),
            )
        asked = session_pb2.GetBlobRequest(
            digest=request.digest, workspace=daemon.workspace, offset=request.offset
        )
        with rpc_errors("sessiond"), held(self._sessions.GetBlob(asked)) as stream:
            async for piece in stream:
                told = pb.ReadBlobResponse(offset=piece.offset, data=piece.data)
                if piece.HasField("info"):
                    told.info.CopyFrom(piece.info)
                yield told

    async def write(
        self, requests: AsyncIterator[pb.WriteBlobRequest], daemon: Identity
    ) -> pb.WriteBlobResponse:
        """Put a blob for a session that has a hand there."""
        messages = aiter(requests)
        first = await anext(messages, None)
        if first is None or not first.HasField("info"):
            raise invalid("info", "must be in the first message")
        if not await self._hands(first.session_id, daemon):
            raise refuse(
                Reason.SESSION_NOT_FOUND,
                f"no session {first.session_id!r} with a hand on this daemon",
            )
        upload = Upload(self._sessions.PutBlob())
        begin = session_pb2.PutBlobRequest(
            info=first.info, workspace=daemon.workspace, offset=first.offset, data=first.data
        )
        try:
            with rpc_errors("sessiond"):
                going = await upload.send(begin)
                while going and (message := await anext(messages, None)) is not None:
                    if message.HasField("info"):
                        raise invalid("info", "belongs in the first message alone")
                    piece = session_pb2.PutBlobRequest(offset=message.offset, data=message.data)
                    going = await upload.send(piece)
                answer = await upload.answer()
        finally:
            upload.close()
        return pb.WriteBlobResponse(info=answer.info, offset=answer.offset)

    async def _hands(self, session_id: str, daemon: Identity) -> list[dict[str, Any]]:
        """The requests of the session's hands on that daemon that have not ended; maybe none.

        None as well for a session of another workspace, or that is not there at all.
        """
        hands: dict[str, dict[str, Any]] = {}
        if await self._workspace(session_id) != daemon.workspace:
            return []
        request = session_pb2.GetEventsRequest(
            session_id=session_id, after=0, types=[_REQUESTED, *_ENDED], limit=1000
        )
        async for event in self._slices(request):
            data = entry_of(event).data
            hand_id = str(data.get("hand_id"))
            if event.type != _REQUESTED:
                hands.pop(hand_id, None)
            elif data.get("daemon") == daemon.name:
                hands[hand_id] = data
        return list(hands.values())

    async def _named(self, request: pb.ReadBlobRequest) -> bool:
        """Whether a call of the session names a blob that one of its results has attached.

        The call is the newest most often, so the log is read from its end.
        """
        named = attached = False
        digest = request.digest.hex()
        asked = session_pb2.GetEventsRequest(
            session_id=request.session_id,
            types=[_CALL, _RESULT],
            order=types_pb2.EVENT_ORDER_NEWEST_FIRST,
            limit=1000,
        )
        async for event in self._slices(asked):
            if digest.encode() not in event.data:
                continue
            data = entry_of(event).data
            if event.type == _CALL:
                named = named or _holds(data.get("input"), digest)
            else:
                told = data.get("attachments")
                attached = attached or (
                    isinstance(told, list) and any(_holds(one, f"sha256:{digest}") for one in told)
                )
            if named and attached:
                return True
        return False

    async def _workspace(self, session_id: str) -> str | None:
        asked = session_pb2.GetSessionRequest(session_id=session_id)
        try:
            with rpc_errors("sessiond"):
                return (
                    await self._sessions.GetSession(asked, timeout=_STORE_LIMIT)
                ).session.workspace
        except CarpalError as error:
            if error.reason is not Reason.SESSION_NOT_FOUND:
                raise
            return None

    async def _slices(
        self, request: session_pb2.GetEventsRequest
    ) -> AsyncIterator[types_pb2.Event]:
        more = True
        while more:
            with rpc_errors("sessiond"):
                slice_ = await self._sessions.GetEvents(request, timeout=_STORE_LIMIT)
            for event in slice_.events:
                yield event
                if request.order == types_pb2.EVENT_ORDER_NEWEST_FIRST:
                    request.before = event.position
                else:
                    request.after = event.position
            more = slice_.more


def _mounted(hand: dict[str, Any]) -> set[bytes]:
    """Digests of the blobs that a hand's request names."""
    digests = (digest_of(str(source)) for source, _ in hand.get("resources") or ())
    return {digest for digest in digests if digest}


def _holds(given: Any, value: str) -> bool:
    """Whether it is an object with that value: anyone may have put anything into a log."""
    return isinstance(given, dict) and value in given.values()
