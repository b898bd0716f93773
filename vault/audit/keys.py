"""The audit's key: sealed, and replaced by the next one when a day begins.

Calls are made by whoever holds the audit's lock, one at a time across processes.
"""

from collections.abc import Callable
from typing import Protocol

from vault.audit.chain import next_key
from vault.database import Database

TABLE = """
CREATE TABLE IF NOT EXISTS audit_key (
  one    INTEGER PRIMARY KEY CHECK (one = 1),
  number INTEGER NOT NULL,           -- how many keys were before it
  day    TEXT NOT NULL,
  sealed BLOB NOT NULL
) STRICT
"""


class Wrap(Protocol):
    """Seals and opens the key of a number."""

    def seal(self, number: int, key: bytes) -> bytes: ...

    def open(self, number: int, sealed: bytes) -> bytes: ...


class AuditKeys:
    """The key of now."""

    def __init__(self, database: Database, wrap: Wrap, day: Callable[[], str]) -> None:
        self._database = database
        self._wrap = wrap
        self._day = day
        self._known: tuple[str, int, bytes] | None = None
        database.execute(TABLE)

    def start(self, key: bytes, number: int = 0) -> bool:
        """The first key, or one after a database that was lost; False when there is one already."""
        self._database.execute(
            "INSERT OR IGNORE INTO audit_key VALUES (1, ?, ?, ?)",
            (number, self._day(), self._wrap.seal(number, key)),
        )
        return self._database.changes() == 1

    def current(self, at_least: int = 0) -> tuple[int, bytes]:
        """Its number, and it; never one before `at_least`, which the last line was written by.

        Raises VAULT_CORRUPT when it was changed.
        """
        day = self._day()
        if self._known and self._known[0] == day and self._known[1] >= at_least:
            return self._known[1:]
        number, key = self._stored(day, at_least)
        self._known = (day, number, key)
        return number, key

    def _stored(self, day: str, at_least: int) -> tuple[int, bytes]:
        with self._database.transaction():
            row = self._database.one("SELECT number, day, sealed FROM audit_key")
            if row is None:
                raise LookupError("the audit has no key")
            number, since, sealed = row
            key = self._wrap.open(number, sealed)
            steps = max(at_least - number, 1 if since != day else 0)
            for _ in range(steps):
                number, key = number + 1, next_key(key)
            if steps:
                self._database.execute(
                    "UPDATE audit_key SET number = ?, day = ?, sealed = ?",
                    (number, day, self._wrap.seal(number, key)),
                )
        if steps:
            self._database.forget()  # the key of yesterday is nowhere any more
        return number, key
