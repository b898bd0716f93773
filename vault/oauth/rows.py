"""Who refreshes which credential, and what was begun: on disk before anything is sent.

A row with an intent and nobody at it was left by a crash, or by an answer that nobody understood:
the refresh token may be spent. It counts for one generation of the credential; a newer one, by
whomever, starts with nothing. Calls are those of the store: one thread, no overlap.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from vault.oauth import holder
from vault.oauth.ports import Key
from vault.safe.safe import Safe

LEASE = 60.0
"""Seconds; longer than a request may take."""

_TABLE = """
CREATE TABLE IF NOT EXISTS oauth_refreshes (
  workspace     TEXT NOT NULL,
  vault_id      TEXT NOT NULL,
  credential_id TEXT NOT NULL,
  generation    INTEGER NOT NULL,    -- of the credential as it was
  holder        TEXT NOT NULL,       -- the process that refreshes; empty when none does
  until         REAL NOT NULL,       -- on the steady clock of the boot in `boot`
  boot          TEXT NOT NULL,
  begun         INTEGER NOT NULL,    -- 1: the refresh token may have been sent
  refused       TEXT NOT NULL,       -- code of the refusal that ended it; empty while there is none
  PRIMARY KEY (workspace, vault_id, credential_id)
) STRICT
"""
_WHERE = "workspace = ? AND vault_id = ? AND credential_id = ?"
_COLUMNS = "generation, holder, until, boot, begun, refused"


class State(StrEnum):
    """Of a credential."""

    FRESH = "fresh"
    REFRESHING = "refreshing"
    REFRESH_UNKNOWN = "refresh_unknown"
    """A refresh was begun and nobody knows how it ended."""
    NEEDS_REAUTH = "needs_reauth"
    """The server refused for good."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """This process refreshes, and no other."""

    unknown: bool
    """Whether one was begun before: this is the one retry."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another process does."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The server refused this grant for good, by this code."""

    code: str


@dataclass(frozen=True, slots=True)
class Newer:
    """There are other tokens already."""


Claim = Claimed | Busy | Ended | Newer


@dataclass(frozen=True, slots=True)
class _Row:
    generation: int
    holder: str
    until: float
    boot: str
    begun: int
    refused: str

    def held(self) -> bool:
        """Whether somebody is at it now."""
        if not self.holder or holder.gone(self.holder):
            return False
        return self.boot == holder.boot() and time.monotonic() < self.until


class Rows:
    """Of one database."""

    def __init__(self, safe: Safe, generation: Callable[[Key], int]) -> None:
        """`generation` says the credential's of now."""
        self._safe = safe
        self._made = False
        self._generation = generation
        self._own = holder.own()

    def claim(self, key: Key, generation: int) -> Claim:
        """Be the one who refreshes, with the intent on disk; or why not."""
        with self._safe.transaction():
            if self._generation(key) != generation:
                return Newer()
            row = self._row(key, generation)
            if row is not None and row.refused:
                return Ended(row.refused)
            if row is not None and row.held():
                return Busy()
            until = time.monotonic() + LEASE
            self._put(key, _Row(generation, self._own, until, holder.boot(), 1, ""))
            return Claimed(row is not None and row.begun == 1)

    def done(self, key: Key) -> None:
        """There are new tokens. In the transaction that commits them."""
        self._safe.database.execute(f"DELETE FROM oauth_refreshes WHERE {_WHERE}", key)  # noqa: S608

    def end(self, key: Key, generation: int, *, begun: bool, refused: str = "") -> None:
        """Let go of it. `begun` stays where the token may be spent; `refused` says it is over."""
        with self._safe.transaction():
            row = self._row(key, generation)
            if row is None or row.holder != self._own:
                return  # another took over
            if begun or refused:
                self._put(key, _Row(generation, "", 0.0, "", int(begun), refused))
            else:
                self.done(key)

    def doubt(self, key: Key) -> None:
        """Its refresh token may be spent: the database is of the past. In a transaction."""
        generation = self._generation(key)
        if self._row(key, generation) is None:
            self._put(key, _Row(generation, "", 0.0, "", 1, ""))

    def state(self, key: Key) -> State:
        """Of now."""
        row = self._row(key, self._generation(key))
        if row is None:
            return State.FRESH
        if row.refused:
            return State.NEEDS_REAUTH
        return State.REFRESHING if row.held() else State.REFRESH_UNKNOWN

    def _row(self, key: Key, generation: int) -> _Row | None:
        """That of this generation; what was noted of one before counts no more."""
        if not self._made:  # at the first use: only then is this the store's thread
            self._safe.database.execute(_TABLE)
            self._made = not self._safe.database.in_transaction
        query = f"SELECT {_COLUMNS} FROM oauth_refreshes WHERE {_WHERE}"  # noqa: S608
        found = self._safe.database.one(query, key)
        row = _Row(*found) if found else None
        return row if row is not None and row.generation == generation else None

    def _put(self, key: Key, row: _Row) -> None:
        self._safe.database.execute(
            f"INSERT OR REPLACE INTO oauth_refreshes "  # noqa: S608
            f"(workspace, vault_id, credential_id, {_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)",
            (*key, row.generation, row.holder, row.until, row.boot, row.begun, row.refused),
        )
