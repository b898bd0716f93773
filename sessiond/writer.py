"""Group commit: one thread owns the write connection and commits what waits, together.

While one batch is made durable the next one gathers, so the cost of a sync is
shared by all who wait for it. A refused job harms no other: refusals come
before writes, and should a job fail after it wrote, its batch is undone and
each job is run again alone.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from carpal.errors import CarpalError, invalid, refuse
from carpal.status import Reason
from sessiond.rows import NOTHING, Changes, EventRow, Needs
from sessiond.store import (
    REJECTED,
    Store,
    StoreBroken,
    StoreConflict,
    StoreFull,
    StoreRejects,
    StoreUnavailable,
    Transaction,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_JOBS = 1_000
BATCH_BYTES = 8 * 1024 * 1024
JOB_BYTES = 512
"""What a job weighs beside its request."""
LAST_COMMITS = 10.0
"""Seconds that closing waits for them. On a database they may wait for a standby, for ever."""
TRIES = 5
"""Of a batch that other processes' transactions are in the way of."""
IN_FLIGHT_BYTES = 64 * 1024 * 1024
"""Waiting or being committed; beyond it, requests wait to be taken and streams are not read."""


class Job(Generic[T]):
    """One request's work in the transaction that it shares with others."""

    __slots__ = ("answer", "apply", "needs", "outcome", "size", "undone")

    def __init__(
        self,
        apply: Callable[[Transaction], T],
        answer: Callable[[T | Exception], None],
        size: int,
        needs: Needs,
        undone: Callable[[], None] | None,
    ) -> None:
        self.apply = apply
        self.answer = answer
        self.size = size
        self.needs = needs
        self.undone = undone
        self.outcome: Any = None


class Writer:
    """The queue before the writing thread. Its methods belong to the event loop."""

    def __init__(self, store: Store, *, in_flight: int = IN_FLIGHT_BYTES) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._room = self._capacity = in_flight
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._listeners: list[Callable[[Changes], None]] = []
        self._closed = False
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Begin to take jobs."""
        self._thread.start()

    def listen(self, listener: Callable[[Changes], None]) -> None:
        """Call `listener` in the event loop after each commit, before its callers go on."""
        self._listeners.append(listener)

    async def run(
        self, apply: Callable[[Transaction], T], size: int = 0, needs: Needs = NOTHING
    ) -> T:
        """Run `apply` in a transaction and return its answer once that is durable.

        `apply` runs in the writing thread; it refuses by raising before its
        first write. `size` is what the request weighs in memory, in bytes.
        """
        future: asyncio.Future[T] = self._loop.create_future()

        def answer(outcome: T | Exception) -> None:
            if future.done():
                return  # the caller left; what it asked for was done all the same
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        await self.submit(apply, answer, size, needs)
        return await future

    async def submit(
        self,
        apply: Callable[[Transaction], T],
        answer: Callable[[T | Exception], None],
        size: int,
        needs: Needs = NOTHING,
        undone: Callable[[], None] | None = None,
    ) -> None:
        """Wait for room and queue the job; jobs run in the order queued.

        `answer` is called in the event loop with what came of it; it must not wait. `undone`
        is called in the writing thread, before any later job runs, when the job as a whole
        failed and left nothing behind.
        """
        size = min(size + JOB_BYTES, self._capacity)
        await self._take_room(size)
        if self._closed or self._broken.done():
            self._give_room(size)
            raise _unavailable()
        self._queue.put(Job(apply, answer, size, needs, undone))

    async def until_broken(self) -> None:
        """Wait for ever, or raise StoreBroken; nothing is written after that."""
        await asyncio.shield(self._broken)

    async def close(self) -> None:
        """Finish what is queued, then stop the thread."""
        self._closed = True
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(_unavailable())
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, LAST_COMMITS)
        if self._thread.is_alive():
            _log.warning("commits that do not end are given up; they may have happened")
            self._store.abandon()
            await asyncio.to_thread(self._thread.join)

    async def _take_room(self, size: int) -> None:
        if self._waiting or self._room < size:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((size, waiter))
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                    self._give_room(size)
                raise
        else:
            self._room -= size

    def _give_room(self, size: int) -> None:
        self._room += size
        while self._waiting:
            wanted, waiter = self._waiting[0]
            if not waiter.done():
                if self._room < wanted:
                    return
                self._room -= wanted
                waiter.set_result(None)
            self._waiting.popleft()

    def _deliver(self, jobs: list[Job[Any]], changes: Changes) -> None:
        """In the event loop: answer the callers, and tell those who listen.

        In this order, since who is woken first runs first: an ack must not wait until tails
        have sent what it acknowledges.
        """
        try:
            for job in jobs:
                try:
                    job.answer(job.outcome)
                except Exception as error:  # noqa: BLE001 - the others wait too
                    _log.error("a caller was not answered", exc_info=error)
        finally:
            self._give_room(sum([job.size for job in jobs]))
        for listener in self._listeners:
            listener(changes)

    def _break(self, error: StoreBroken) -> None:
        self._broken.set_exception(error)
        self._broken.exception()  # looked at, should nobody wait for it

    # What follows runs in the writing thread.

    def _run(self) -> None:
        broken = False
        while (jobs := self._gather()) is not None:
            changes = Changes()
            if not broken:
                try:
                    changes = self._commit(jobs)
                except Exception as error:  # noqa: BLE001 - the top of the thread
                    # Whether this batch is on disk is unknown; only opening anew can tell.
                    broken = self._report(error)
            if broken:
                for job in jobs:
                    job.outcome = _unavailable()
            self._loop.call_soon_threadsafe(self._deliver, jobs, changes)
            if not broken:
                try:
                    self._store.maintain()  # after the answers: nobody waits for it
                except Exception as error:  # noqa: BLE001 - the top of the thread
                    broken = self._report(error)

    def _report(self, error: Exception) -> bool:
        """The store broke: say so to whoever waits for that."""
        _log.critical("the store broke", exc_info=error)
        broken = error if isinstance(error, StoreBroken) else StoreBroken(repr(error))
        self._loop.call_soon_threadsafe(self._break, broken)
        return True

    def _gather(self) -> list[Job[Any]] | None:
        """Wait for a job, then take all that wait, up to a batch; None when closed."""
        first = self._queue.get()
        if first is None:
            return None
        jobs, size = [first], first.size
        while not self._queue.empty() and len(jobs) < BATCH_JOBS and size < BATCH_BYTES:
            job = self._queue.get()
            if job is None:
                self._queue.put(None)
                break
            jobs.append(job)
            size += job.size
        return jobs

    def _commit(self, jobs: list[Job[Any]]) -> Changes:
        try:
            changes = self._together(jobs)
        except (_Spoiled, StoreFull, StoreRejects, StoreConflict):
            changes = self._one_by_one(jobs)
        except StoreUnavailable as error:
            _log.warning("the store does not answer", extra={"problem": str(error)})
            changes = Changes()
            for job in jobs:
                self._lost(job)
        return changes

    def _together(self, jobs: list[Job[Any]]) -> Changes:
        """All jobs in one transaction; raises when one of them spoilt it."""
        for _ in range(TRIES - 1):
            try:
                return self._once(jobs)
            except StoreConflict as error:
                _log.debug("a batch runs again", extra={"problem": str(error)})
        return self._once(jobs)

    def _once(self, jobs: list[Job[Any]]) -> Changes:
        try:
            tx = self._store.begin([job.needs for job in jobs])
            for job in jobs:
                before = tx.writes
                try:
                    job.outcome = job.apply(tx)
                except (StoreFull, StoreBroken, StoreUnavailable, StoreRejects):
                    raise
                except Exception as error:
                    job.outcome = error  # raised to the one who asked
                    self._undone(job)
                    if tx.writes != before:
                        raise _Spoiled from error
            return self._store.commit()
        except (_Spoiled, StoreFull, StoreUnavailable, StoreRejects):
            self._store.rollback()
            raise

    def _one_by_one(self, jobs: list[Job[Any]]) -> Changes:
        sessions, leases = {}, {}
        events: dict[str, list[EventRow]] = {}
        erased = False
        away = False
        for job in jobs:
            if away:
                self._lost(job)  # each would wait as long as the one before
                continue
            try:
                changes = self._together([job])
            except _Spoiled:
                continue  # its outcome says why
            except StoreUnavailable as error:
                away = not isinstance(error, StoreConflict)
                self._lost(job)
            except StoreRejects:
                job.outcome = invalid("text", REJECTED)
                self._undone(job)
            except StoreFull:
                job.outcome = refuse(Reason.STORE_FULL, "the disk that holds the sessions is full")
                self._undone(job)
            else:
                sessions.update({row.session_id: row for row in changes.sessions})
                leases.update({row.resource: row for row in changes.leases})
                for session_id, rows in changes.events.items():
                    events.setdefault(session_id, []).extend(rows)
                erased = erased or changes.erased
        events = {} if erased else events
        return Changes(tuple(sessions.values()), tuple(leases.values()), events, erased)

    @classmethod
    def _lost(cls, job: Job[Any]) -> None:
        """It may have been committed: ids tell when it is sent again."""
        job.outcome = refuse(Reason.UNAVAILABLE, "the store does not answer")
        cls._undone(job)

    @staticmethod
    def _undone(job: Job[Any]) -> None:
        if job.undone is not None:
            job.undone()


class _Spoiled(Exception):
    """A job failed after it had written."""


def _unavailable() -> CarpalError:
    return refuse(Reason.UNAVAILABLE, "sessiond is stopping")
