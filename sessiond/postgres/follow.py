"""Following what other processes commit to the database, so that this one's watchers hear of it.

A hint says which rows to read; it is not believed. Hints may be lost, so everything is also
looked at now and then; and while none come, that is done so often that nobody misses them.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from sessiond.postgres.channel import Channel
from sessiond.postgres.clock import PostgresClock
from sessiond.postgres.connection import NOW, PostgresConnection
from sessiond.postgres.hints import Wanted, tokens
from sessiond.rows import Changes, LeaseRow, LeaseState, SessionRow
from sessiond.sql.following import leases_now, sessions_now
from sessiond.sql.reader import SqlReader
from sessiond.store import StoreBroken, StoreFull, StoreUnavailable

_log = logging.getLogger(__name__)

SAFETY = 5.0
"""Seconds between looks at everything, while hints come."""
TICK = 0.025
"""Seconds between looks at what is tailed, while none come."""
POLL = 0.25
"""Seconds between looks at everything, while none come."""
PAUSE = 1.0
"""Seconds before the database is tried again."""
ASKED = 5.0
"""Seconds that whoever asks for what others committed waits for it, at most."""
_RECENT = 2.0
"""Seconds within which a commit of ours may be told here after one that came later."""


@dataclass
class _Found:
    """What was read."""

    sessions: list[SessionRow] = field(default_factory=list)
    leases: list[LeaseRow] = field(default_factory=list)
    tailed: list[SessionRow] = field(default_factory=list)


class Follower:
    """Keeps what this process knows in step; but for `committed`, of the event loop."""

    def __init__(self, url: str, clock: PostgresClock, *, listen: bool) -> None:
        self._connection = PostgresConnection(url)
        self._reader = SqlReader(self._connection)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="follow")
        self._channel = Channel(url, self._heard)
        self._clock = clock
        self._listens = listen
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted = Wanted()
        self._more_wanted = asyncio.Event()
        self._ours_since: set[str] = set()
        """What this process committed since the read that runs began."""
        self._theirs: dict[str, float] = {}
        """What others committed, and when that was told here."""
        self._work: dict[str, SessionRow] = {}
        self._live: dict[str, LeaseRow] = {}
        self._tailed: dict[str, SessionRow] = {}
        """As last told here, so that what is as it was is not told again."""
        self._is_tailed: Callable[[], Collection[str]] = tuple
        self._asking: list[asyncio.Future[None]] = []
        """Who waits for all that was committed by now, and no look began since."""
        self._asking_still: list[asyncio.Future[None]] = []
        """Those whose look found what this process had just committed too: the next one, which
        begins after that was noted, tells which is newer. One more is enough."""

    def committed(self, changes: Changes) -> None:
        """This process committed; called in the writing thread, before its watchers hear of it."""
        loop = self._loop
        if loop is not None and (changes.sessions or changes.leases):
            loop.call_soon_threadsafe(self._ours, changes)

    async def run(
        self,
        changed: Callable[[Changes], None],
        tailed: Callable[[], Collection[str]],
        known: Changes,
    ) -> None:
        """See `store.Store.follow`."""
        self._loop = asyncio.get_running_loop()
        self._is_tailed = tailed
        self._note(known)
        try:
            async with asyncio.TaskGroup() as group:
                if self._listens:
                    group.create_task(self._channel.hear())
                    group.create_task(self._channel.tell())
                await self._look(changed)
        finally:
            self._loop = None
            self._thread.submit(self._connection.close)
            self._thread.shutdown(wait=False)

    async def up_to_date(self) -> None:
        """See `store.Store`."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asking.append(told)
        self._want(Wanted(everything=True))
        try:
            async with asyncio.timeout(ASKED):
                await told
        except TimeoutError:
            raise StoreUnavailable("what other processes committed cannot be read") from None

    def _ours(self, changes: Changes) -> None:
        if self._listens:
            self._channel.say(tokens(changes))
        self._note(changes)
        tailed = self._is_tailed()
        for row in changes.sessions:
            if row.session_id in tailed:
                self._tailed[row.session_id] = row
            self._ours_since.add(row.session_id)
            if row.session_id in self._theirs:
                # What others committed later may have been told here before.
                self._want(Wanted(sessions={row.session_id}))
        for lease in changes.leases:
            self._ours_since.add(lease.resource)
            if lease.resource in self._theirs:
                self._want(Wanted(leases={lease.resource}))

    def _heard(self, hint: Iterable[str]) -> None:
        wanted = Wanted()
        wanted.add(hint, self._is_tailed())
        if wanted:
            self._want(wanted)

    def _note(self, changes: Changes) -> None:
        for row in changes.sessions:
            if _has_work(row):
                self._work[row.session_id] = row
            else:
                self._work.pop(row.session_id, None)
        for lease in changes.leases:
            if lease.state is LeaseState.LIVE:
                self._live[lease.resource] = lease
            else:
                self._live.pop(lease.resource, None)

    def _want(self, more: Wanted) -> None:
        self._wanted.sessions |= more.sessions
        self._wanted.leases |= more.leases
        self._wanted.everything |= more.everything
        self._more_wanted.set()

    async def _look(self, changed: Callable[[Changes], None]) -> None:
        loop = asyncio.get_running_loop()
        next_full = loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAFETY if self._channel.hears else TICK):
                    await self._more_wanted.wait()
            self._more_wanted.clear()
            wanted, self._wanted = self._wanted, Wanted()
            asking, self._asking = self._asking, []
            now = loop.time()
            wanted.everything |= now >= next_full
            also = set(self._is_tailed()) if wanted.everything or not self._channel.hears else set()
            if not wanted and not also:
                continue
            self._ours_since.clear()
            try:
                found = await loop.run_in_executor(
                    self._thread,
                    self._read,
                    wanted,
                    also,
                    set(self._work) if wanted.everything else set(),
                    set(self._live) if wanted.everything else set(),
                )
            except (StoreUnavailable, StoreFull, StoreBroken) as error:
                _log.warning("cannot follow other processes", extra={"problem": str(error)})
                self._want(Wanted(everything=True))
                self._asking += asking
                await asyncio.sleep(PAUSE)
                continue
            if wanted.everything:
                next_full = now + (SAFETY if self._channel.hears else POLL)
                self._theirs = {k: t for k, t in self._theirs.items() if t > now - _RECENT}
            if self._tell_here(found, changed, now):
                told, self._asking_still = self._asking_still + asking, []
            else:
                told, self._asking_still = self._asking_still, asking
            for waiter in told:
                if not waiter.done():
                    waiter.set_result(None)

    def _read(self, wanted: Wanted, tailed: set[str], work: set[str], live: set[str]) -> _Found:
        """In the thread. What was known and is not found among the living is read by name."""
        with self._reader.snapshot():
            found = _Found()
            if wanted.everything:
                self._clock.measured(self._connection.execute(NOW)[0][0] * 1000)
                found.sessions = self._reader.with_work()
                found.leases = self._reader.live_leases()
                wanted.sessions |= work
                wanted.leases |= live
            there = {row.session_id for row in found.sessions}
            found.sessions += sessions_now(self._connection, wanted.sessions - there)
            leased = {lease.resource for lease in found.leases}
            found.leases += leases_now(self._connection, wanted.leases - leased)
            found.tailed = sessions_now(self._connection, tailed)
            return found

    def _tell_here(self, found: _Found, changed: Callable[[Changes], None], now: float) -> bool:
        """Tell what is news; whether that was all of it, or some is read again first."""
        tailed = [r for r in found.tailed if self._tailed.get(r.session_id) != r]
        self._tailed = {row.session_id: row for row in found.tailed} or self._tailed
        sessions = [r for r in found.sessions if self._work.get(r.session_id) != r] + tailed
        leases = [r for r in found.leases if self._live.get(r.resource) != r]
        # What we committed meanwhile is newer, or not: it is read again.
        again = Wanted(
            sessions={r.session_id for r in sessions if r.session_id in self._ours_since},
            leases={r.resource for r in leases if r.resource in self._ours_since},
        )
        if again:
            self._want(again)
        changes = Changes(
            tuple(r for r in sessions if r.session_id not in again.sessions),
            tuple(r for r in leases if r.resource not in again.leases),
        )
        if changes.sessions or changes.leases:
            self._note(changes)
            self._theirs.update(dict.fromkeys(_keys(changes), now))
            changed(changes)
        return not again


def _has_work(row: SessionRow) -> bool:
    """As the store's `with_work` sees it."""
    return (
        row.archived is None
        and row.deleted is None
        and not row.parked
        and (row.wake > row.processed or row.wake_at is not None)
    )


def _keys(changes: Changes) -> Iterable[str]:
    yield from (row.session_id for row in changes.sessions)
    yield from (lease.resource for lease in changes.leases)
