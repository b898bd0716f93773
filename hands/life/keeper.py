"""Keeps one live hand: runs its calls in order and journals each step before it is told.

It starts nothing twice: what comes in was checked against the journal by the
service. When the hand dies, its open calls are settled as lost.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager

from carpal.errors import refuse
from carpal.layers import OWNER_STOPPED
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands import results
from hands.blobs import Blobs
from hands.contract import (
    Call,
    Enterable,
    Entrance,
    Hand,
    HandLost,
    Inside,
    Outcome,
    Output,
    Result,
    Savable,
    Speaking,
    Spooled,
    Started,
    Step,
)
from hands.counts import Counts
from hands.inside.deadline import Deadline
from hands.journal import HandRow, Journal
from hands.life import kept, saving
from hands.life.fetching import Fetching
from hands.life.kept import Keeping
from hands.life.remains import RESISTS, Remains
from hands.life.running import Running
from hands.life.spool import Spool
from hands.unasked import Unasked

log = logging.getLogger(__name__)

STOPPED = f"{OWNER_STOPPED} it"
_LAST_WORDS = 0.5
"""Seconds to hear what a dead hand said before."""
_REAP_LIMIT = 1.5
"""Seconds to clean up after a dead hand before its calls are called lost, within 2."""


class Keeper:
    """One live hand and its open calls."""

    def __init__(
        self,
        row: HandRow,
        hand: Hand,
        journal: Journal,
        remains: Remains,
        blobs: Blobs,
        *,
        counts: Counts,
        unasked: Unasked,
        fetching: Fetching,
    ) -> None:
        """`remains` kills what a dead hand leaves behind; changed files go to `blobs`."""
        self._unasked = unasked
        self._fetching = fetching
        self.hand_id = row.hand_id
        self.open: dict[str, Running] = {}
        """Calls without a result, in order."""
        self._hand = hand
        self._journal = journal
        self._type = row.type
        self._folder = remains.folder_of(row.hand_id)
        self._remains = remains
        self._blobs = blobs
        self._counts = counts
        self._line: asyncio.Queue[Running | None] = asyncio.Queue()
        self._idle = False
        """The worker waits for the next call, and none is in line."""
        self._held = 0
        """People who have control: no call begins meanwhile."""
        self._free = asyncio.Event()
        self._free.set()
        self._lost = ""
        self._deadline = Deadline(row.orphan_deadline)
        self._deadline.contact(ago=hand.quiet)

    def submit(self, call: Call, digest: bytes) -> Running:
        """Accept a call that the journal does not know; it runs when its turn comes."""
        running = Running(call.call_id, call, Spool(self._folder, call.call_id))
        if self._idle and not self._held and not self._fetching.needs(call):
            # Its turn is now: one step in the journal, not two.
            self._journal.starting(self.hand_id, call.call_id, digest)
            running.waits = False
        else:
            self._journal.accepted(self.hand_id, call.call_id, digest)
        return self._enqueue(running)

    def resume(self, call_id: str) -> Running:
        """Take up a call that the adopted hand holds."""
        return self._enqueue(Running(call_id, None, Spool(self._folder, call_id)))

    async def run(self) -> None:
        """Run calls until the hand is lost or this is cancelled."""
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(self._work())
            listener = group.create_task(self._listen())
            self._lost = await self._hand.wait_lost()
            log.warning("hand lost", extra={"hand_id": self.hand_id, "reason": self._lost})
            for running in self.open.values():
                running.fetching.stop()
                if running.ended:
                    running.ended.stop()  # nobody waits for contents of a dead hand's files
            self._line.put_nowait(None)
            self._free.set()
            await worker
            await asyncio.wait({listener}, timeout=_LAST_WORDS)
            listener.cancel()
        self._unasked.ended(self.hand_id)
        await self._bury(_REAP_LIMIT)

    async def cancel(self, call_id: str, grace: float) -> None:
        """Stop an open call: at once when it waits in line, else TERM, then KILL."""
        running = self.open[call_id]
        if running.began:
            await self._hand.cancel(call_id, grace)
        else:
            self._settle(running, results.cancelled("before it started"))

    async def contact(self) -> None:
        """A brain with a live lease was heard."""
        self._deadline.contact()
        await self._hand.contact()

    async def save(self, session_id: str, save_id: str) -> pb.Attachment:
        """Its workspace as a blob. NOT_BUILT when its type cannot."""
        if not isinstance(self._hand, Savable):
            raise refuse(Reason.NOT_BUILT, "a hand of this type cannot be saved")
        # Beside the folders of hands: this one is the hand's own, which it may fill and change.
        above = self._folder.parent.parent
        return await saving.save(self._hand, self._blobs, session_id, save_id, above)

    @property
    def orphan_in(self) -> float:
        """Seconds left before the hand ends itself."""
        return self._deadline.left

    @contextmanager
    def held(self) -> Iterator[list[str]]:
        """A person has control: no call begins. Gives those that had begun, which go on."""
        self._held += 1
        self._free.clear()
        try:
            yield self.running
        finally:
            self._held -= 1
            if not self._held:
                self._free.set()

    @property
    def running(self) -> list[str]:
        """Open calls that have begun."""
        return [running.call_id for running in self.open.values() if running.began]

    @property
    def taken(self) -> bool:
        """Whether a person has control."""
        return self._held > 0

    def enter(self, entrance: Entrance) -> AbstractAsyncContextManager[Inside]:
        """See `Enterable`. NOT_BUILT when its type cannot."""
        if not isinstance(self._hand, Enterable):
            raise refuse(Reason.NOT_BUILT, "nobody can enter a hand of this type")
        return self._hand.enter(entrance)

    async def release(self) -> None:
        """End the hand, from outside when it does not obey, and then settle its calls."""
        self._unasked.ended(self.hand_id)
        if self._lost:
            await self._bury(None)
            return
        ended = True
        try:
            await self._hand.release()
        except Exception as error:  # lost, or its type's own bug
            told = isinstance(error, HandLost)  # in its type's own words
            log.warning("hand ended from outside", extra={"why": str(error)}, exc_info=not told)
            ended = False
        # A call may have ended just before the hand did.
        left = await self._remains.left(self._type, self.hand_id)
        dead = ended or await self._remains.reap(self._type, self.hand_id)
        # Not before: it would be said of what still runs.
        self._settle_open(lambda running: results.released(dead=dead, began=running.began), left)

    async def stop(self) -> bool:
        """End the hand as its machine's owner says, and all it started; whether all is dead.

        It is lost then: its calls are interrupted, and their results wait for whoever asks.
        """
        if self._lost:
            await self._bury(None)
            return True
        try:
            await self._hand.release()
        except Exception as error:  # lost, or its type's own bug
            told = isinstance(error, HandLost)  # in its type's own words
            log.warning("hand ended from outside", extra={"why": str(error)}, exc_info=not told)
        left = await self._remains.left(self._type, self.hand_id)
        dead = await self._remains.reap(self._type, self.hand_id)
        self._settle_open(lambda running: results.stopped(began=running.began), left)
        reason = STOPPED if dead else f"{STOPPED}; {RESISTS}"
        self._journal.lost(self.hand_id, reason)
        await self._hand.detach()
        return dead

    async def detach(self) -> None:
        """Leave the hand running; the daemon ends."""
        await self._hand.detach()

    def _enqueue(self, running: Running) -> Running:
        self.open[running.call_id] = running
        self._idle = False
        self._line.put_nowait(running)
        return running

    async def _work(self) -> None:
        while (running := await self._next()) and not self._lost:
            if running.result is not None:
                continue  # cancelled in line
            try:
                if running.call is not None:
                    await self._fetch(running, running.call)
                if running.result is None and not self._lost:  # which may have come meanwhile
                    await self._pump(running)
            except HandLost:
                return
            except sqlite3.Error:
                # The journal's, and the call goes on: the next daemon tells how it ended.
                raise
            except Exception as error:  # a hand type's own bug must not end the daemon
                log.exception("hand type failed", extra={"hand_id": self.hand_id})
                if running.result is None:
                    why = f"the hand type failed: {error}"
                    self._settle(running, results.interrupted(why, began=running.began))

    async def _listen(self) -> None:
        """Journal what the hand says unasked, and then let it forget that."""
        if not isinstance(self._hand, Speaking):
            return
        try:
            async for event in self._hand.events():
                self._unasked.take(self.hand_id, event)
                await self._hand.heard(event.event_id)
        except HandLost:
            return
        except sqlite3.Error:
            raise
        except Exception:  # a hand type's own bug must not end the daemon
            log.exception("what a hand says is not heard", extra={"hand_id": self.hand_id})

    async def _next(self) -> Running | None:
        self._idle = self._line.empty()
        try:
            running = await self._line.get()
        finally:
            self._idle = False
        await self._until_free()
        return running

    async def _fetch(self, running: Running, call: Call) -> None:
        """Have put there what it names, which may take long; a person may have come meanwhile."""
        sessions = self._journal.sessions_of(self.hand_id)
        try:
            async with running.fetching.running():
                await self._fetching.before(self._hand, call, sessions)
        except TimeoutError:
            if not running.fetching.stopped:
                raise
        await self._until_free()

    async def _until_free(self) -> None:
        """Until nobody has control, or the hand is lost."""
        while self._held and not self._lost:  # who woke this may not be the last who took it
            await self._free.wait()

    async def _pump(self, running: Running) -> None:
        async for step in self._steps(running):
            if running.result is not None:
                continue  # settled by a release
            match step:
                case Started(pid, start_time):
                    self._journal.running(self.hand_id, running.call_id, pid, start_time)
                case Output():
                    running.take(step)
                case Spooled(end):
                    running.told(end)
                case Result():
                    await self._end(running, step)
        if running.result is None:
            self._settle(running, Result(Outcome.INTERRUPTED, "[the call ended without a result]"))
        await self._hand.acknowledge(running.call_id)

    async def _end(self, running: Running, result: Result) -> None:
        """Have contents of files taken, while the hand lives, and journal the result."""
        sessions = self._journal.sessions_of(self.hand_id)
        running.ended = ended = Keeping(result, self._folder, self._blobs, sessions, kept.LIMIT)
        if not self._lost:
            await ended.put()
        if running.result is None:  # no release settled it meanwhile
            self._settle(running, ended.result)
        self._fetching.gave(result)
        if ended.any:
            await asyncio.to_thread(ended.clear)

    def _steps(self, running: Running) -> AsyncIterator[Step]:
        if running.call is None:
            return self._hand.attach(running.call_id)
        if running.waits:
            self._journal.starting(self.hand_id, running.call_id)
        running.began = True
        return self._hand.execute(running.call)

    async def _bury(self, limit: float | None) -> None:
        """Settle the calls of a hand that died, and what is left of it, within `limit` seconds."""
        # Before it is reaped, and not in the time for that: it is the truth about its calls.
        left = await self._remains.left(self._type, self.hand_id)
        dead = await self._remains.reap(self._type, self.hand_id, limit)
        reason = self._lost if dead else f"{self._lost}; {RESISTS}"
        self._settle_open(lambda running: results.lost(reason, began=running.began), left)
        self._journal.lost(self.hand_id, reason)
        await self._hand.detach()

    def _settle_open(
        self, otherwise: Callable[[Running], Result], left: Mapping[str, Result]
    ) -> None:
        """Settle all calls: as they ended, as far as that is known."""
        for running in list(self.open.values()):
            if running.ended:
                self._settle(running, running.ended.result)
            else:
                self._settle(running, left.get(running.call_id) or otherwise(running))

    def _settle(self, running: Running, result: Result) -> None:
        message = results.to_message(result, self._journal.sequence + 1)
        self._journal.terminal(
            self.hand_id,
            running.call_id,
            result.outcome,
            message.SerializeToString(),
            head=bytes(running.spool.head),
            total=running.spool.total,
        )
        self._counts.outcomes[result.outcome] += 1
        self._counts.output_bytes += running.spool.total
        del self.open[running.call_id]
        running.finish(message)
