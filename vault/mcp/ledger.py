"""Small things that must be on disk before something is done: written together, in one transaction.

They are kept for as long as their session uses servers, and KEPT_DAYS more: until then a driver may
ask again for a call that was open when everything stood still. Then all of a session goes at once.

A write waits for the disk, and while one does, others come: they go in the next transaction, all
at once. So a hundred calls at a time cost little more than one.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.database import Database

_TABLES = """
CREATE TABLE IF NOT EXISTS mcp_calls (
  session TEXT NOT NULL,
  call    TEXT NOT NULL,
  round   INTEGER NOT NULL,          -- 0, and more where the server asked a person in between
  server  TEXT NOT NULL,
  began   INTEGER NOT NULL,          -- Unix seconds
  outcome TEXT,                      -- NULL: it may have been sent, and nobody knows more
  mark    TEXT NOT NULL UNIQUE,      -- of the one sending that this is
  PRIMARY KEY (session, call, round)
) STRICT;
CREATE TABLE IF NOT EXISTS mcp_tools (
  session TEXT NOT NULL,
  server  TEXT NOT NULL,
  tool    TEXT NOT NULL,
  digest  TEXT NOT NULL,             -- of all that the server said of it
  PRIMARY KEY (session, server, tool)
) STRICT;
CREATE TABLE IF NOT EXISTS mcp_sessions (
  session TEXT PRIMARY KEY,
  day     INTEGER NOT NULL           -- when it last used a server; days of Unix time
) STRICT;
CREATE INDEX IF NOT EXISTS mcp_sessions_day ON mcp_sessions (day);
"""
KEPT_DAYS = 400
"""Twelve months for which the oldest of our processes is served, and one for whoever is late."""
_AT_ONCE = 100
"""Sessions that are forgotten in one transaction, which others wait for."""
_DAY = 86_400
LATER = 0.1
"""Seconds that what nobody waits for may wait: a write of its own would hold up the next call."""
T = TypeVar("T")
Write = Callable[[Database], Any]


class Ledger:
    """One database, written by one thread: `executor` has no other."""

    def __init__(
        self,
        database: Database,
        executor: Executor,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for table in _TABLES.split(";\n"):
            if table.strip():
                database.execute(table)
        self._clock = clock
        self._pruned = 0
        """The day on which nothing older was left."""
        self._database = database
        self._executor = executor
        self._waiting: list[tuple[Write, asyncio.Future[Any]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def write(self, session: str, change: Callable[[Database], T]) -> T:
        """What `change` gives, once it is durable. Raises STORE_FULL and VAULT_CORRUPT.

        `session` is whose it is, and in use by that.
        """

        def both(database: Database) -> T:
            database.execute(
                "INSERT INTO mcp_sessions VALUES (?, ?) ON CONFLICT DO UPDATE "
                "SET day = excluded.day WHERE day < excluded.day",
                (session, self._day),
            )
            return change(database)

        done = self._add(both)
        self._begin()
        return await done

    def later(self, change: Write) -> None:
        """Write it with whatever is written next, or soon: nobody waits for it."""
        self._add(change)
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(LATER, self._begin)

    async def close(self) -> None:
        """Wait until all of it is durable."""
        if self._waiting:
            self._begin()
        if self._writing is not None:
            await asyncio.wait({self._writing})

    def _add(self, change: Callable[[Database], T]) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, done))
        return done

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, []
                changes = [change for change, _ in taken]
                try:
                    answers = await loop.run_in_executor(self._executor, self._commit, changes)
                except CarpalError as error:
                    _fail(taken, error)
                    continue
                except Exception:
                    _fail(taken, refuse(Reason.INTERNAL, "it could not be written down"))
                    raise
                for (_, done), answer in zip(taken, answers, strict=True):
                    if not done.done():
                        done.set_result(answer)
        finally:
            self._writing = None

    def _commit(self, changes: list[Write]) -> list[Any]:
        with self._database.transaction():
            answers = [change(self._database) for change in changes]
            if self._pruned != self._day:
                self._prune()
            return answers

    @property
    def _day(self) -> int:
        return int(self._clock() // _DAY)

    def _prune(self) -> None:
        """Some of what is old, once a day and until none is left; what is in use came before."""
        old = self._database.execute(
            "SELECT session FROM mcp_sessions WHERE day < ? LIMIT ?",
            (self._day - KEPT_DAYS, _AT_ONCE),
        )
        for table in ("mcp_calls", "mcp_tools", "mcp_sessions"):
            for session in old:
                self._database.execute(f"DELETE FROM {table} WHERE session = ?", session)  # noqa: S608
        if len(old) < _AT_ONCE:
            self._pruned = self._day


def _fail(taken: list[tuple[Write, asyncio.Future[Any]]], error: CarpalError) -> None:
    for _, done in taken:
        if not done.done():
            done.set_exception(error)
            done.exception()  # who did not wait for it is not told
