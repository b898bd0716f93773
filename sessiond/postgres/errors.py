"""What an error of PostgreSQL means for the store."""

import re

import psycopg

from carpal.errors import CarpalError
from sessiond.store import (
    StoreBroken,
    StoreConflict,
    StoreFull,
    StoreRejects,
    StoreUnavailable,
)
from sessiond.store_url import bad

_FULL = frozenset({"53000", "53100", "53200"})
"""Out of disk, out of memory."""
_CONFLICT = frozenset({"40001", "40P01", "23505", "55P03"})
"""Not serializable, a deadlock, a key another took first, a lock held too long."""
_AWAY = ("08", "57", "28", "53", "3D", "25006", "25P03", "25P04", "40003")
"""Connections, shutdown or cancelled by an operator, no access, too many; read-only after a
failover; idle for too long; unknown."""

_NO_ACCESS = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|"
    r"role .* does not exist|is not permitted to log in"
)
_WRONG_VALUE = re.compile(r"invalid [a-z_ -]{3,40} value(?=:)|invalid port number")


class NoAccess(StoreUnavailable):
    """The database answers, and does not let this user in."""


def connect_error(error: psycopg.Error) -> Exception:
    """Why there is no connection. Such errors have no code: only words tell them apart."""
    text = str(error)
    if isinstance(error, psycopg.ProgrammingError):
        return url_error()
    if (wrong := _WRONG_VALUE.search(text)) is not None:
        return bad(f"--store has a parameter that is not what it may be: {wrong[0]}")
    return NoAccess(text) if _NO_ACCESS.search(text) else StoreUnavailable(text)


def url_error() -> CarpalError:
    """CONFIG_INVALID, without the library's own words: they may hold a password."""
    return bad("--store has a parameter, or a value, that PostgreSQL's library does not know")


def store_error(error: psycopg.Error) -> Exception:
    """The store's error for PostgreSQL's."""
    state = error.sqlstate
    text = error.diag.message_primary or str(error)
    if state in _FULL:
        return StoreFull(text)
    if state in _CONFLICT:
        return StoreConflict(text)
    if state is None and isinstance(error, psycopg.DataError):
        return StoreRejects(text)
    if state is None and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreUnavailable(text)
    if state is not None and state.startswith(_AWAY):
        return StoreUnavailable(text)
    if state in {"22021", "22P05"}:
        return StoreRejects(text)
    return StoreBroken(f"the store cannot be read or written: {text}")
