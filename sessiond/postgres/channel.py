"""The channel on which the processes of one database give each other hints.

NOTIFY has a connection of its own: inside the transaction that it is about, all commits of
the database would queue for it. Hints may be lost, and a database may have no LISTEN at all.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress

import psycopg

from sessiond.postgres.connection import conninfo
from sessiond.postgres.hints import payloads

_log = logging.getLogger(__name__)

CHECK = 5.0
"""Seconds of silence after which the connection is tried."""
GAP = 0.004
"""Seconds between hints: what is committed meanwhile goes out together."""
PAUSE = 1.0
"""Seconds before the database is tried again."""
_NAME = "carpal"


class Channel:
    """One process's ear and voice. Of the event loop."""

    def __init__(self, url: str, heard: Callable[[Iterable[str]], None]) -> None:
        """`heard` gets the tokens of others' hints; `*` when some may have been missed."""
        self.hears = False
        """Whether others' hints come in now."""
        self._conninfo = conninfo(url)
        self._who = secrets.token_hex(4)
        self._heard = heard
        self._news: dict[str, None] = {}
        self._news_came = asyncio.Event()

    def say(self, tokens: Iterable[str]) -> None:
        """Tell the others, soon."""
        self._news.update(dict.fromkeys(tokens))
        self._news_came.set()

    async def hear(self) -> None:
        """Listen until cancelled, or until it turns out that there is no LISTEN."""
        while True:
            try:
                async with await connect(self._conninfo) as connection:
                    await connection.execute(f"LISTEN {_NAME}")
                    self.hears = True
                    self._heard("*")
                    while True:
                        async for hint in connection.notifies(timeout=CHECK):
                            who, *tokens = hint.payload.split(" ")
                            if who != self._who:
                                self._heard(tokens)
                        await connection.execute("SELECT 1")  # or it may be gone unnoticed
            except psycopg.Error as error:
                if _is_unknown(error):
                    _log.warning("this database has no LISTEN: it is polled")
                    return
                _log.info("not listening", extra={"problem": str(error)})
            finally:
                if self.hears:
                    self.hears = False
                    self._heard("*")
            await asyncio.sleep(PAUSE)

    async def tell(self) -> None:
        """Send what is said until cancelled, or until it turns out that there is no NOTIFY."""
        lost = False
        while True:
            try:
                await self._news_came.wait()
                async with await connect(self._conninfo) as connection:
                    with suppress(psycopg.errors.UndefinedObject):
                        # A hint need not be on disk, nor on a standby.
                        await connection.execute("SET synchronous_commit = off")
                    if lost:
                        self._news = {"*": None}
                    lost = True
                    await self._send(connection)
            except psycopg.Error as error:
                if _is_unknown(error):
                    return
                _log.info("not telling others", extra={"problem": str(error)})
                self._news_came.set()
            await asyncio.sleep(PAUSE)

    async def _send(self, connection: "psycopg.AsyncConnection[tuple[object, ...]]") -> None:
        while True:
            await self._news_came.wait()
            self._news_came.clear()
            news, self._news = self._news, {}
            for hint in payloads(self._who, news):
                await connection.execute("SELECT pg_notify(%s, %s)", (_NAME, hint), prepare=True)
            await asyncio.sleep(GAP)


async def connect(conninfo: str) -> "psycopg.AsyncConnection[tuple[object, ...]]":
    """One more connection, in the event loop."""
    return await psycopg.AsyncConnection.connect(conninfo, autocommit=True)


def _is_unknown(error: psycopg.Error) -> bool:
    """Whether the database does not know such a statement."""
    return isinstance(
        error,
        psycopg.errors.FeatureNotSupported
        | psycopg.errors.SyntaxError
        | psycopg.errors.UndefinedFunction,
    )
