"""Checks can fail: services that break one sentence each are caught, and told so in words."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError, invalid
from carpal.ids import new_id
from carpal.server import Context
from carpal.v1 import session_pb2 as pb
from sessiond.conformance import callers
from sessiond.conformance.group import Verdict
from sessiond.conformance.run import judge
from sessiond.conformance.suite import CHECKS
from sessiond.service.sessions import SessionService
from tests.pace import SCALE
from tests.pki import Pki
from tests.sessiond import serving
from tests.sessiond.clocks import FakeClock
from tests.sessiond.test_contract_wire import issue


class AppendsAnew(SessionService):
    async def EmitEvent(self, request: pb.EmitEventRequest, context: Context) -> Any:
        request.event.id = new_id("sevt")
        return await super().EmitEvent(request, context)


class LetsTheFencedIn(SessionService):
    async def EmitEvent(self, request: pb.EmitEventRequest, context: Context) -> Any:
        if request.event.type.startswith("user."):
            request.ClearField("epoch")
        return await super().EmitEvent(request, context)


class GivesAnotherReason(SessionService):
    async def EmitEvent(self, request: pb.EmitEventRequest, context: Context) -> Any:
        if len(request.event.data) > 2**20:
            raise invalid("event.data", "is too large")
        return await super().EmitEvent(request, context)


class ReplacesSessions(SessionService):
    async def CreateSession(self, request: pb.CreateSessionRequest, context: Context) -> Any:
        try:
            return await super().CreateSession(request, context)
        except CarpalError:
            return pb.CreateSessionResponse()


class NumbersFromZero(SessionService):
    async def Append(self, request_iterator: Any, context: Context) -> AsyncIterator[Any]:
        async for response in super().Append(request_iterator, context):
            for ack in response.acks:
                ack.position -= 1
            yield response


class SaysThereIsNoMore(SessionService):
    async def GetEvents(self, request: pb.GetEventsRequest, context: Context) -> Any:
        answer = await super().GetEvents(request, context)
        answer.more = False
        return answer


class EditsTheLog(SessionService):
    async def GetEvents(self, request: pb.GetEventsRequest, context: Context) -> Any:
        answer = await super().GetEvents(request, context)
        for event in answer.events:
            event.time.nanos ^= 1
        return answer


class RepeatsInTails(SessionService):
    async def TailEvents(self, request: pb.TailEventsRequest, context: Context) -> Any:
        async for message in super().TailEvents(request, context):
            yield message
            yield message


class SkipsInTails(SessionService):
    async def TailEvents(self, request: pb.TailEventsRequest, context: Context) -> Any:
        async for message in super().TailEvents(request, context):
            del message.events[1:2]
            yield message


class ListsOldestFirst(SessionService):
    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> Any:
        answer = await super().ListSessions(request, context)
        answer.sessions.sort(key=lambda session: session.session_id)
        return answer


class SignsSomethingElse(SessionService):
    async def AcquireLease(self, request: pb.AcquireLeaseRequest, context: Context) -> Any:
        answer = await super().AcquireLease(request, context)
        answer.lease.epoch += 1
        return answer


class ForksTooLittle(SessionService):
    async def ForkSession(self, request: pb.ForkSessionRequest, context: Context) -> Any:
        request.position -= 1
        return await super().ForkSession(request, context)


class ForgetsWhoErased(SessionService):
    async def RedactEvent(self, request: pb.RedactEventRequest, context: Context) -> Any:
        answer = await super().RedactEvent(request, context)
        answer.event.redaction.ClearField("by")
        return answer


class KeepsTheDeleted(SessionService):
    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Context) -> Any:
        return pb.DeleteSessionResponse()


class ReadsFromTheStart(SessionService):
    async def GetBlob(self, request: pb.GetBlobRequest, context: Context) -> Any:
        request.offset = 0
        async for message in super().GetBlob(request, context):
            yield message


class BreaksDown(SessionService):
    async def GetSession(self, request: pb.GetSessionRequest, context: Context) -> Any:
        raise RuntimeError("a bug")


FAULTS = [
    (AppendsAnew, "append", "emitted_again", "again: "),
    (LetsTheFencedIn, "append", "lower_epoch", "not refused, where STALE_EPOCH was due"),
    (GivesAnotherReason, "append", "event_limit", "where EVENT_TOO_LARGE was due"),
    (ReplacesSessions, "sessions", "id_reused", "was not refused, where ID_REUSED was due"),
    (NumbersFromZero, "append", "group_positions", "positions: [3, 4, 9], not [4, 5, 10]"),
    (SaysThereIsNoMore, "slices", "from_either_end", "([1, 2, 3], False), not ([1, 2, 3], True)"),
    (EditsTheLog, "append", "acknowledged_is_read", "the newest: "),
    (RepeatsInTails, "tail", "replay_then_live", "the position after the last one: 1, not 6"),
    (SkipsInTails, "tail", "replay_then_live", "the position after the last one: 3, not 2"),
    (ListsOldestFirst, "sessions", "newest_first", "by 3: "),
    (SignsSomethingElse, "leases", "ticket", "resource, epoch, holder, workspace: "),
    (EditsTheLog, "chain", "recomputed", "the hash of 1 does not follow from the one before"),
    (ForksTooLittle, "forks", "prefix_shared", "from, at: "),
    (ForgetsWhoErased, "redaction", "erased", "by: '', not 'spiffe://carpal.internal/operator"),
    (KeepsTheDeleted, "deletion", "gone", "was not refused, where SESSION_NOT_FOUND was due"),
    (ReadsFromTheStart, "blobs", "from_an_offset", "the offset of a piece: 0, not 1"),
    (BreaksDown, "sessions", "created_whole", "refused as INTERNAL"),
]


@pytest.mark.parametrize(
    "fault", FAULTS, ids=[f"{fault[0].__name__}-{fault[2]}" for fault in FAULTS]
)
async def test_a_service_that_breaks_one_sentence_is_caught(
    fault: tuple[type[SessionService], str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service, group, name, said = fault
    monkeypatch.setattr(serving, "SessionService", service)
    verdict = await verdict_on(tmp_path, group, name)
    assert (verdict.verdict, verdict.group) == ("fail", group)
    assert said in verdict.detail
    assert "\n" not in verdict.detail


async def test_what_is_not_built_fails_as_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bare(SessionService):
        async def GetEvents(self, request: pb.GetEventsRequest, context: Context) -> Any:
            raise NotImplementedError

    monkeypatch.setattr(serving, "SessionService", Bare)
    assert (await verdict_on(tmp_path, "slices", "counted")).detail == "not built"
    assert (await verdict_on(tmp_path, "slices", "type_malformed")).detail == "not built"


async def verdict_on(tmp_path: Path, group: str, name: str) -> Verdict:
    """What one check says of a service in this process."""
    pki, folder = Pki(tmp_path / "pki"), tmp_path / "as"
    issue(pki, folder)
    (check,) = [one for one in CHECKS if (one.group, one.name) == (group, name)]
    async with (
        serving.serving(tmp_path, pki, FakeClock()) as server,
        callers.connected(callers.find(folder), server.address) as connected,
    ):
        return await judge(check, connected, SCALE)
