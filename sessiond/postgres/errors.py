"""What an error of PostgreSQL means for the store."""

import psycopg

from sessiond.store import (
    StoreBroken,
    StoreConflict,
    StoreFull,
    StoreRejects,
    StoreUnavailable,
)

_FULL = frozenset({"53000", "53100", "53200"})
"""Out of disk, out of memory."""
_CONFLICT = frozenset({"40001", "40P01", "23505", "55P03"})
"""Not serializable, a deadlock, a key another took first, a lock held too long."""
_AWAY = ("08", "57", "28", "53", "3D", "25006", "25P03", "25P04", "40003")
"""Connections, shutdown or cancelled by an operator, no access, too many; read-only after a
failover; idle for too long; unknown."""


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
