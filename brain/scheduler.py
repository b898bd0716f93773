"""The scheduler: takes the lease of what is runnable and drives it.

An offer is no promise: brains race, the lease decides. A drive that fails is
released with its reason, which counts as a try; sessiond backs off and, after
three without progress, parks the session. Other sessions do not notice.
"""

import asyncio
import logging
import re
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from brain.daemons.fleet import Fleet
from brain.hands.housekeeping import idle_hands
from brain.mcp.grants import Door
from brain.models.model import Model
from brain.runner import Runner
from brain.session.driver import Anew, Driver
from brain.session.folds import Folds
from brain.session.leases import Lease, LeaseKeeper, Log
from brain.session.log import Appender
from brain.session.watch import WatchHub
from brain.text import clean
from carpal.backoff import Backoff
from carpal.client import held, rpc_errors
from carpal.errors import CarpalError, Exhausted, Unreachable, refuse
from carpal.layers import Layer, layer_of
from carpal.process import only_error
from carpal.status import Reason
from carpal.v1 import session_pb2, session_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

_STARTING = 32
"""Sessions that are being taken and their logs read at any one time: when very many are runnable
at once, the first are on their way before the last are begun."""
_TRIES = 10
"""Times to ask for a lease while sessiond does not answer."""
_FAILURE_MAX = 2_000
"""Characters that sessiond is told of a failure."""


class Scheduler:
    """Drives runnable sessions, each in a task of its own."""

    def __init__(
        self,
        stub: "session_pb2_grpc.SessionAsyncStub",
        keeper: LeaseKeeper,
        appender: Appender,
        fleet: Fleet,
        hub: WatchHub,
        *,
        model: Model,
        hand_idle: float,
        vault: Door | None = None,
        sessions_max: int = 2_000,
    ) -> None:
        """`hand_idle`: seconds an idle session keeps its hands. Without a `vault`, no MCP servers.

        `sessions_max`: how many are driven at once; more wait until one of them is idle.
        """
        self._stub = stub
        self._keeper = keeper
        self._appender = appender
        self._fleet = fleet
        self._hub = hub
        self._model = model
        self._vault = vault
        self._hand_idle = hand_idle
        self._driving: dict[str, asyncio.Task[None]] = {}
        self._folds = Folds()
        self._again: set[str] = set()
        """Sessions offered once more while they were driven."""
        self._stopping = False
        self._slots = asyncio.Semaphore(sessions_max)
        self._starting = asyncio.Semaphore(_STARTING)

    async def run(self) -> None:
        """Take offers; runs until cancelled, then hands its sessions over."""
        backoff = Backoff(0.1, 2.0)
        try:
            while True:
                watched = self._stub.WatchRunnable(session_pb2.WatchRunnableRequest())
                try:
                    with rpc_errors("sessiond"), held(watched) as stream:
                        async for answer in stream:
                            backoff.works()
                            for offer in answer.sessions:
                                self._consider(offer)
                except CarpalError as error:
                    log.warning("no offers", extra={"error": str(error)})
                await asyncio.sleep(backoff.next())
        finally:
            self._stopping = True
            self._again.clear()
            tasks = list(self._driving.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _consider(self, offer: types_pb2.RunnableSession) -> None:
        """Drive it; when it is being driven, look again after: its release may be on its way."""
        session_id = offer.session_id
        if session_id in self._driving:
            self._again.add(session_id)
        else:
            self._start(session_id)

    def _start(self, session_id: str) -> None:
        task = asyncio.create_task(self._take(session_id))
        self._driving[session_id] = task

        def ended(_: "asyncio.Task[None]") -> None:
            del self._driving[session_id]
            if session_id in self._again:
                self._again.discard(session_id)
                self._start(session_id)

        task.add_done_callback(ended)

    async def _take(self, session_id: str) -> None:
        async with self._slots, AsyncExitStack() as starting:
            await starting.enter_async_context(self._starting)
            kept = self._folds.take(session_id)
            taken = await self._acquire(session_id, kept.transcript.head if kept else 0)
            if taken is None:
                return
            lease, info, log = taken
            driver = Driver(
                session_id,
                info.workspace,
                lease,
                self._stub,
                self._appender,
                inherited=max(info.forked_at, info.imported_to),
                imported_to=info.imported_to,
                log=log,
                kept=kept,
            )
            del kept, log
            try:
                processed, wake_in = await _while_held(
                    driver, self._drive(driver, info.head.position, starting)
                )
            except asyncio.CancelledError as raised:
                if not self._stopping:
                    # The harness did: nobody else cancels a drive.
                    await self._failed(lease, info, raised)
                    return
                # This brain stops: whoever is next may start at once.
                await self._keeper.release(lease, processed=info.processed, wake_in=0.0)
                raise
            except BaseException as raised:  # noqa: BLE001 - the top of a drive: it ends in the log
                if _is_anew(raised):
                    # No failure: it goes on at once, with another lease.
                    await self._keeper.release(lease, processed=info.processed, wake_in=0.0)
                    return
                await self._failed(lease, info, only_error(raised))
            else:
                self._folds.keep(session_id, driver.fold)
                await self._keeper.release(lease, processed=processed, wake_in=wake_in)

    async def _acquire(
        self, session_id: str, after: int
    ) -> tuple[Lease, types_pb2.SessionInfo, Log] | None:
        """Its lease, with the log above a position, if that is short.

        None when another brain has it, or it needs none any more.
        """
        backoff = Backoff(0.1, 2.0)
        tries = 0
        while tries < _TRIES:
            try:
                return await self._keeper.acquire_session(session_id, after)
            except Exhausted as error:
                # Its disk is full. It goes on and offers nothing anew when there is room.
                log.info("not taken yet", extra={"session": session_id, "error": str(error)})
                await asyncio.sleep(backoff.next())
            except Unreachable as error:
                tries += 1
                log.info("not taken yet", extra={"session": session_id, "error": str(error)})
                await asyncio.sleep(backoff.next())
            except CarpalError as error:
                log.debug("not taken", extra={"session": session_id, "error": str(error)})
                return None
        return None  # sessiond offers everything anew when it is back

    async def _failed(
        self, lease: Lease, info: types_pb2.SessionInfo, error: BaseException
    ) -> None:
        if isinstance(error, CarpalError) and error.reason is Reason.STALE_EPOCH:
            log.info("lease over", extra={"session": info.session_id})
            self._keeper.drop(lease)
            return
        log.error("drive failed", exc_info=error, extra={"session": info.session_id})
        # Somebody's words may be no text that can be sent, or too long for it.
        failure = clean(str(error)[:_FAILURE_MAX]) or type(error).__name__
        if isinstance(error, asyncio.CancelledError):
            failure = "it was cancelled by what it drove"
        failed = failed_by(error)
        await self._keeper.release(lease, processed=info.processed, failure=failure, failed=failed)

    async def _drive(
        self, driver: Driver, head: int, starting: AsyncExitStack
    ) -> tuple[int, float | None]:
        """What was processed, and in how many seconds to look again."""
        await driver.until(lambda t: t.head >= head)
        await starting.aclose()  # the next one's turn
        if driver.transcript.unknown:
            kinds = ", ".join(sorted({entry.type for entry in driver.transcript.unknown}))
            raise refuse(
                Reason.NOT_BUILT, f"the log has events this brain must know and does not: {kinds}"
            )
        done = await Runner(driver, self._fleet, self._hub, self._model, self._vault).run()
        wake_in = await idle_hands(driver, self._fleet, self._hand_idle)
        return done.processed, wake_in


def _is_anew(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_anew, error.exceptions))
    return isinstance(error, Anew)


def failed_by(error: BaseException) -> tuple[str, str]:
    """Which layer a drive failed in, and why in one word."""
    if isinstance(error, CarpalError):
        return str(layer_of(error.reason, Layer.HARNESS)), str(error.reason)
    return str(Layer.HARNESS), re.sub(r"[^A-Za-z0-9_.-]", "_", type(error).__name__)[:64]


async def _while_held(
    driver: Driver, drive: Coroutine[Any, Any, tuple[int, float | None]]
) -> tuple[int, float | None]:
    """Drive with the tail following, and only as long as the lease is held."""

    async def until_lost() -> None:
        await driver.lease.lost.wait()
        driver.check_lease()

    async with asyncio.TaskGroup() as group:
        helpers = [group.create_task(driver.follow()), group.create_task(until_lost())]
        outcome = await drive
        for helper in helpers:
            helper.cancel()
    return outcome
