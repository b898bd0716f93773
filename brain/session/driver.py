"""The driver's view of one session: its transcript, kept live, and its appends.

Everything comes by the tail, one's own events too, so the transcript is
always the log in order and never a guess.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from brain.session.entries import Entry, New
from brain.session.folds import Fold, goes_on
from brain.session.leases import Lease, Log
from brain.session.log import Appender, tail, told
from brain.session.store_reads import keep_blob, read_blob, read_events
from brain.session.transcript import Transcript
from brain.session.waking import Waking
from carpal.backoff import Backoff
from carpal.client import rpc_errors
from carpal.errors import CarpalError, Unreachable, refuse
from carpal.status import Reason
from carpal.v1 import session_pb2, session_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

T = TypeVar("T")
SessionStub: TypeAlias = "session_pb2_grpc.SessionAsyncStub"


_PASSES = {Reason.STORE_FULL, Reason.CERTIFICATE_EXPIRED}
"""Refusals that waiting ends: somebody frees disk space, and a certificate has a successor."""


class Anew(Exception):
    """This drive ends, for the next to begin with a lease of its own."""


class Driver:
    """One session, while this brain holds its lease."""

    def __init__(
        self,
        session_id: str,
        workspace: str,
        lease: Lease,
        stub: "session_pb2_grpc.SessionAsyncStub",
        appender: Appender,
        *,
        inherited: int = 0,
        imported_to: int = 0,
        log: Log | None = None,
        kept: Fold | None = None,
    ) -> None:
        """`log`: what the lease came with; `kept`: a fold of it up to there, this driver's now.

        The rest is as `Waking` has it.
        """
        self.session_id = session_id
        self.workspace = workspace
        self.lease = lease
        self.started_at = 0
        """The log's head when this driver took over."""
        self._stub = stub
        self._appender = appender
        self._changed = asyncio.Condition()
        self._held: list[New] = []
        """What stands before the next events that are appended, in their group."""
        self._log = log
        self._waking = Waking(stub, session_id, inherited=inherited, imported_to=imported_to)
        self.fold = Fold(inherited)
        # Held against the log before anyone waits for the transcript: a restored log may be
        # shorter than what is kept, which would answer each wait with what is not there any more.
        if log is not None and kept is not None and kept.transcript.inherited == inherited:
            self.fold = kept if goes_on(kept, log) else self.fold

    @property
    def transcript(self) -> Transcript:
        """The log, folded as far as it came."""
        return self.fold.transcript

    async def follow(self) -> None:
        """Feed the transcript; runs until cancelled."""
        counted = await self._begin()
        async for events, _ in tail(self._stub, self.session_id, self.transcript.head):
            if events:
                async with self._changed:
                    self.fold.take(events, counted)
                    self._changed.notify_all()

    async def _begin(self) -> int:
        """Begin with what is known; up to where redactions are counted with it."""
        log, self._log = self._log, None
        if log is None:
            return 0
        if goes_on(self.fold, log):
            async with self._changed:
                self.fold.take(map(told, log.events or ()), log.head.position)
                self._changed.notify_all()
        else:
            self.fold = Fold.woken(await self._waking.transcript(log.head.position))
        self.fold.redacted = log.redacted
        return log.head.position

    async def until(self, holds: Callable[[Transcript], bool]) -> None:
        """Wait until something is true of the transcript."""
        async with self._changed:
            await self._changed.wait_for(lambda: holds(self.transcript))

    async def unless(self, stops: Callable[[Transcript], bool], work: Awaitable[T]) -> T | None:
        """Do the work; None as soon as `stops` is true of the transcript, the work cancelled."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.create_task(self.until(stops))
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    async def append(self, *events: New, wake: bool = False) -> int:
        """Append a group and see it in the transcript; its last position.

        With `wake`, somebody drives the session for it, even if this driver is just done.
        Refuses when the lease is over: what it would say may be untrue by
        the time it is written.
        """
        last = await self.append_unseen(*events, wake=wake)
        await self.until(lambda t: t.head >= last)
        return last

    async def append_unseen(self, *events: New, wake: bool = False) -> int:
        """As `append`, but it may take another moment until the transcript has it."""
        self.check_lease()
        group, self._held = [*self._held, *events], []
        return await self._appender.append(self.session_id, group, self.lease.epoch, wake=wake)

    def hold(self, *events: New) -> None:
        """Have these stand before what is appended next, in one group with it.

        For what nobody decides by until then: the transcript does not have it yet.
        """
        self._held += events

    async def append_held(self) -> None:
        """Append what is held, if anything is."""
        if self._held:
            await self.append()

    async def checkpoint(self, through: int) -> dict[str, Any] | None:
        """The fold of the log up to a cut, for its event; None when it would be too large.

        Or when the log cannot be read: it is a convenience. STALE_EPOCH when the lease is over.
        """
        try:
            return await self._waking.state(through, self.read)
        except CarpalError as error:
            if error.reason is Reason.STALE_EPOCH:
                raise
            log.warning("no checkpoint made", extra={"error": str(error)})
            return None

    async def read(self, **which: Any) -> list[Entry]:
        """A slice of the log, as `read_events` has it, however long sessiond is away."""
        return await self.patiently(lambda stub: read_events(stub, self.session_id, **which))

    async def keep(self, data: bytes, media_type: str = "application/json") -> str:
        """Put bytes where the log can name them; the blob's name in it, `sha256:…`.

        Waits for sessiond as an append does.
        """
        return await self.patiently(lambda stub: keep_blob(stub, self.workspace, data, media_type))

    async def content(self, blob: str, size: int) -> bytes | None:
        """The bytes of a blob that the log names, of `size` at most; None where it is not.

        Waits for sessiond as an append does.
        """
        return await self.patiently(lambda stub: read_blob(stub, self.workspace, blob, size))

    async def patiently(self, ask: Callable[[SessionStub], Awaitable[T]]) -> T:
        """What sessiond answers, however long it is away. STALE_EPOCH when the lease is over."""
        backoff = Backoff(0.1, 1.0)
        while True:
            self.check_lease()
            try:
                return await ask(self._stub)
            except CarpalError as error:
                if not isinstance(error, Unreachable) and error.reason not in _PASSES:
                    raise
                log.info("sessiond is waited for", extra={"error": str(error)})
                await asyncio.sleep(backoff.next())

    async def check_refusal(self) -> None:
        """After a refusal for a stale epoch: STALE_EPOCH unless sessiond says that it is not so.

        A hand may say what it likes; who drives is sessiond's word. Waits while that does not
        answer, no longer than the lease lasts.
        """
        backoff = Backoff(0.1, 1.0)
        ref = types_pb2.LeaseRef(resource=self.lease.resource, epoch=self.lease.epoch)
        while True:
            self.check_lease()
            asked = time.monotonic()
            try:
                with rpc_errors("sessiond"):
                    answer = await self._stub.RenewLease(
                        session_pb2.RenewLeaseRequest(leases=[ref]), timeout=self.lease.left()
                    )
            except CarpalError as error:
                log.info("lease not checked", extra={"error": str(error)})
                await asyncio.sleep(backoff.next())
                continue
            (renewed,) = answer.leases
            if renewed.HasField("status"):
                self.lease.lost.set()
            self.check_lease()
            self.lease.extend(asked, renewed.expires_in.ToMilliseconds() / 1000)
            return

    def check_lease(self) -> None:
        """STALE_EPOCH when no effect may start any more."""
        if self.lease.left() <= 0:
            raise lost(self.session_id)


def lost(session_id: str) -> CarpalError:
    """The lease of a session is over."""
    return refuse(Reason.STALE_EPOCH, f"the lease of session {session_id} is over")
