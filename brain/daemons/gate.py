"""Who may link: not a daemon in quarantine, and no second machine of one name.

What is decided is a document of the workspace, `quarantine/<daemon>`, so every
brain goes by it, and a restart forgets nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from brain.daemons.clones import Machine, Verdict, describe, is_same, judge
from carpal.client import rpc_errors
from carpal.errors import CarpalError, NotFound, refuse
from carpal.status import Reason
from carpal.v1 import session_pb2, session_pb2_grpc

log = logging.getLogger(__name__)

KIND = "quarantine"
ANSWER_LIMIT = 2.0
"""Seconds for the first machine to answer; one that hellos is welcomed or refused within 5."""
_STORE_LIMIT = 10.0
_PAGE = 1_000


class Record(msgspec.Struct, frozen=True):
    """A daemon's document of quarantine."""

    state: str = "lifted"
    """`quarantined`: nobody of the name may link. `cloned`: only `first`. `lifted`: anybody."""
    reason: str = ""
    by: str = ""
    """SPIFFE URI of who decided it."""
    first: Machine | None = None

    @property
    def told(self) -> str:
        """For an operator; empty when nothing is refused."""
        return "" if self.state == "lifted" else self.reason or self.state

    def check(self, name: str, new: Machine) -> None:
        """DAEMON_QUARANTINED if this machine may not link."""
        if self.state == "quarantined":
            raise refused(name, self.reason or "by an operator")
        if self.state == "cloned" and (self.first is None or not is_same(self.first, new)):
            raise refused(name, self.reason)


class Gate:
    """The quarantines of every workspace, read when they are needed."""

    def __init__(self, sessions: "session_pb2_grpc.SessionAsyncStub", me: str) -> None:
        """`me` is this brain's URI, the author of what it finds."""
        self._sessions = sessions
        self._me = me

    async def check(
        self,
        name: str,
        workspace: str,
        *,
        new: Machine,
        first: Machine | None,
        answers: bool | None,
    ) -> None:
        """DAEMON_QUARANTINED unless a daemon that says hello may link.

        `first` is who has the link now; `answers` is what `answering` said of that very link.
        UNAVAILABLE when it is to be asked and was not: it linked a moment ago.
        """
        record, version = await self._find(name, workspace)
        record.check(name, new)
        verdict = judge(first, new, answers)
        if verdict is Verdict.ASK:
            raise refuse(Reason.UNAVAILABLE, f"another link of {name} came at the same time")
        if verdict is Verdict.CLONE and first is not None:
            reason = (
                f"{describe(first, new)} has its identity while the first is linked; until it is "
                "lifted, only the first may link"
            )
            found = Record("cloned", reason, self._me, first)
            log.error("a daemon is cloned", extra={"daemon": name, "why": reason})
            await self._put(name, workspace, found, version)
            raise refused(name, reason)

    async def word(self, name: str, workspace: str) -> CarpalError | None:
        """What is decided of a daemon, for its machine: the refusal, or None when it may link.

        Of a clone's name it cannot be told here which machine asks: the first may link.
        """
        record, _ = await self._find(name, workspace)
        if record.state == "lifted":
            return None
        return refused(name, record.told)

    async def decide(self, name: str, workspace: str, record: Record) -> None:
        """Write what an operator decided."""
        known, version = await self._find(name, workspace)
        if known != record:
            await self._put(name, workspace, record, version)

    async def told(self, workspace: str) -> dict[str, Record]:
        """The workspace's quarantines that are in force, by daemon."""
        found: dict[str, Record] = {}
        request = session_pb2.ListDocumentsRequest(kind=KIND, workspace=workspace, limit=_PAGE)
        while True:
            with rpc_errors("sessiond"):
                page = await self._sessions.ListDocuments(request, timeout=_STORE_LIMIT)
            for document in page.documents:
                record = msgspec.json.decode(document.data, type=Record)
                if record.told:
                    found[document.name] = record
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def _find(self, name: str, workspace: str) -> tuple[Record, int]:
        request = session_pb2.GetDocumentRequest(kind=KIND, name=name, workspace=workspace)
        try:
            with rpc_errors("sessiond"):
                answer = await self._sessions.GetDocument(request, timeout=_STORE_LIMIT)
        except NotFound:
            return Record(), 0
        document = answer.document
        return msgspec.json.decode(document.data, type=Record), document.version

    async def _put(self, name: str, workspace: str, record: Record, version: int) -> None:
        request = session_pb2.PutDocumentRequest(
            kind=KIND,
            name=name,
            workspace=workspace,
            expected_version=version,
            data=msgspec.json.encode(record),
        )
        with rpc_errors("sessiond"):
            await self._sessions.PutDocument(request, timeout=_STORE_LIMIT)


def refused(name: str, why: str) -> CarpalError:
    """The refusal, for whoever reads the daemon's log."""
    return refuse(
        Reason.DAEMON_QUARANTINED,
        f"daemon {name} is quarantined: {why}",
        action=f"ask an operator to decide: `carpal fleet quarantine {name} --lift`, "
        f"or `carpal fleet revoke {name}`",
    )


async def answering(
    first: Machine | None, new: Machine, ask: Callable[[], Awaitable[object]]
) -> bool | None:
    """Whether the daemon that is linked now still answers; None where nobody needs to know.

    `ask` asks it for anything. Takes up to ANSWER_LIMIT.
    """
    if judge(first, new) is not Verdict.ASK:
        return None
    try:
        async with asyncio.timeout(ANSWER_LIMIT):
            await ask()
    except (TimeoutError, CarpalError):
        return False
    return True
