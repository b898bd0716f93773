"""A connection to PostgreSQL, as the SQL wants it; the store's errors instead of PostgreSQL's.

It connects when it is first used, and anew after it was lost, but never in the middle of a
transaction. What costs here is round trips, so BEGIN travels with the first statements
of its transaction, and those that need no answer travel together.
"""

import logging
import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.generators import send
from psycopg.types.numeric import Int8BinaryDumper

from sessiond.postgres.errors import connect_error, store_error, url_error
from sessiond.sql.connection import Row
from sessiond.store import StoreUnavailable

_log = logging.getLogger(__name__)

NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
"""Microseconds since 1970, by the database's clock."""
APPLICATION = "carpal sessiond"
"""How the database's administrator sees us."""
_DEFAULTS = {
    "application_name": APPLICATION,
    "connect_timeout": "5",
    # After a failover the other hosts of the URL are tried, until one takes writes.
    "target_session_attrs": "read-write",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""What the URL does not say itself: a host that is gone is noticed within seconds."""
_SETTINGS = {
    # A COMMIT that waits for its standby must not be cut short: it would count as done.
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "lock_timeout": "15s",
    # A process that was stopped in a transaction keeps its sessions from all others.
    "idle_in_transaction_session_timeout": "10s",
    # Plans are made while tables are empty, and kept: they must be those of full tables.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "jit": "off",
    "DateStyle": "ISO",
}
_SINCE = {"transaction_timeout": 170_000}
"""The version that first had it."""
_PREPARED = 500
WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_FEW_ROWS = 32
"""Read at once, whatever their size; an event has 1 MiB at most."""
_STEP_BYTES = 2 * 1024 * 1024
_STEP_ROWS = 1000

Raw = psycopg.Connection[Row]


def conninfo(url: str) -> str:
    """How to connect, with what the URL leaves open; CONFIG_INVALID when it is none."""
    try:
        given = conninfo_to_dict(url)
        return make_conninfo(url, **{**_DEFAULTS, **given, "client_encoding": "UTF8"})
    except psycopg.ProgrammingError:
        raise url_error() from None


class PostgresConnection:
    """Implements `sql.connection.Connection`."""

    lock_rows = " FOR UPDATE"

    def __init__(self, url: str, opened: Callable[[Raw], None] | None = None) -> None:
        """Connect later. `opened` gets each new connection before it is used."""
        self._raw: Raw | None = None
        self._conninfo = conninfo(url)
        self.opened = opened
        self._pending = ""
        """The BEGIN that travels with the next statement."""
        self._in_block = False
        self._piped = False
        self._abandoned = False
        self._cursors = 0
        """Opened in this block."""
        self._cut_short = False
        """A COMMIT was acknowledged before its standby had it."""
        self.now: int | None = None
        """What the database's clock said in this write transaction: nanoseconds since 1970."""

    def open(self) -> Raw:
        """Connect, unless it is connected."""
        raw = self._raw
        if raw is not None and not raw.closed:
            return raw
        if self._in_block and not self._pending:
            raise StoreUnavailable("the connection to the store was lost")
        if self._abandoned:
            raise StoreUnavailable("sessiond is stopping")
        raw = connect(self._conninfo)
        raw.add_notice_handler(self._noticed)
        try:
            if self.opened is not None:
                self.opened(raw)
        except psycopg.Error as error:
            raw.close()
            raise store_error(error) from error
        except BaseException:
            raw.close()
            raise
        self._raw = raw
        return raw

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """See `sql.connection.Connection`."""
        if self._pending:
            return self.execute_all([(statement, values)])[0]
        raw = self.open()
        try:
            cursor = raw.execute(statement, values, binary=True)
            return [] if self._piped else _rows(cursor)
        except psycopg.Error as error:
            raise self._failed(error) from error

    def execute_all(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Row]]:
        """See `sql.connection.Connection`."""
        if len(queries) == 1 and not self._pending:
            return [self.execute(*queries[0])]
        raw = self.open()
        begin, self._pending = self._pending, ""
        try:
            with _pipeline(raw):
                if begin:
                    raw.execute(begin, prepare=False)
                cursors = [raw.execute(query, values, binary=True) for query, values in queries]
                # Last, when the locks are had: time never goes back from one commit to the next.
                clock = raw.execute(NOW, binary=True) if begin == WRITE else None
            if clock is not None:
                self.now = _rows(clock)[0][0] * 1000
            return [_rows(cursor) for cursor in cursors]
        except psycopg.Error as error:
            raise self._failed(error) from error

    def stream(
        self, statement: str, values: Sequence[Any] = (), most: int | None = None
    ) -> Generator[Row]:
        """See `sql.connection.Connection`."""
        if most is not None and most <= _FEW_ROWS:
            yield from self.execute(statement, values)
        elif self._in_block:
            yield from self._steps(statement, values)
        else:
            with self.snapshot():
                yield from self._steps(statement, values)

    def _steps(self, statement: str, values: Sequence[Any]) -> Generator[Row]:
        """By a cursor in the database, a few MiB at a time. It goes with the transaction."""
        name = f"steps{self._cursors}"
        self._cursors += 1
        asked = _FEW_ROWS
        _, rows = self.execute_all(
            [
                (f"DECLARE {name} NO SCROLL CURSOR FOR {statement}", values),
                (f"FETCH FORWARD {asked} FROM {name}", ()),
            ]
        )
        while True:
            yield from rows
            if len(rows) < asked:
                return
            size = sum(len(value) for row in rows for value in row if isinstance(value, bytes))
            asked = min(max(_STEP_BYTES * len(rows) // (size + 1), 1), _STEP_ROWS)
            # One of few statements, for each of which the database keeps a plan.
            asked = 1 << (asked.bit_length() - 1)
            rows = self.execute(f"FETCH FORWARD {asked} FROM {name}")

    @contextmanager
    def pipelined(self) -> Iterator[None]:
        """See `sql.connection.Connection`."""
        raw = self.open()
        self._piped = True
        try:
            with _pipeline(raw):
                yield
        except psycopg.Error as error:
            raise self._failed(error) from error
        finally:
            self._piped = False
        if self._cut_short:
            raise StoreUnavailable("a commit did not wait for its standby")

    def begin(self) -> None:
        """See `sql.connection.Connection`."""
        self._in_block, self._pending, self._cursors = True, WRITE, 0
        self.now, self._cut_short = None, False
        self.open()

    def tell_time(self) -> None:
        """Set `now` to what the database's clock says now, in a write transaction."""
        self.now = self.execute(NOW)[0][0] * 1000

    def commit(self) -> None:
        """See `sql.connection.Connection`."""
        if not self._pending:
            self.execute("COMMIT")
        self._in_block, self._pending = False, ""
        if self._cut_short and not self._piped:
            raise StoreUnavailable("a commit did not wait for its standby")

    def rollback(self) -> None:
        """See `sql.connection.Connection`."""
        self._in_block, self._pending = False, ""
        raw = self._raw
        if raw is None or raw.closed:
            return
        try:
            if raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                raw.execute("ROLLBACK", prepare=False)
        except psycopg.Error:
            self.close()  # which undoes it as well

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See `sql.connection.Connection`."""
        self._in_block, self._pending, self._cursors = True, _READ, 0
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def close(self) -> None:
        """See `sql.connection.Connection`."""
        if self._raw is not None:
            self._raw.close()

    def abandon(self) -> None:
        """From another thread: whatever is waited for here fails, and nothing connects again."""
        self._abandoned = True
        raw = self._raw
        if raw is not None:
            try:
                wire = socket.socket(fileno=os.dup(raw.fileno()))
            except psycopg.Error:
                return  # it is closed
            with wire, suppress(OSError):  # or it has just been
                wire.shutdown(socket.SHUT_RDWR)

    def __del__(self) -> None:
        """Whoever let go of it without a word wanted it closed."""
        self.close()

    def _failed(self, error: psycopg.Error) -> Exception:
        raw = self._raw
        if raw is not None and raw.broken:
            raw.close()
        return store_error(error)

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            _log.warning("the store warns", extra={"warning": notice.message_primary})
            # In words alone: "canceling the wait for synchronous replication".
            self._cut_short |= "synchronous" in (notice.message_primary or "") or self._piped


@contextmanager
def _pipeline(raw: Raw) -> Iterator[None]:
    """A pipeline that ends with its Sync, and not with a Flush after it, as psycopg's does.

    A Flush disarms the database's timer for whoever stands still in a transaction.
    """
    with raw.pipeline() as pipeline:

        def end() -> PQGen[None]:
            try:
                pipeline._enqueue_sync()
                yield from pipeline._communicate_gen()
            finally:
                yield from send(pipeline.pgconn)
                yield from pipeline._fetch_gen(flush=False)

        pipeline._exit_gen = end  # type: ignore[method-assign]
        yield


def connect(conninfo: str) -> Raw:
    """A new connection with our settings."""
    try:
        raw = psycopg.connect(
            conninfo, autocommit=True, prepare_threshold=0, cursor_factory=psycopg.RawCursor
        )
    except psycopg.Error as error:
        raise connect_error(error) from None
    try:
        raw.prepared_max = _PREPARED
        raw.adapters.register_dumper(int, Int8BinaryDumper)
        _set(
            raw,
            {
                name: value
                for name, value in _SETTINGS.items()
                if name not in _SINCE or raw.info.server_version >= _SINCE[name]
            },
        )
        level = raw.execute("SHOW synchronous_commit", prepare=False).fetchone()
        if level == ("off",):  # as a default for others, perhaps; ours would be lost
            raw.execute("SET synchronous_commit = on", prepare=False)
    except psycopg.Error as error:
        raw.close()
        raise store_error(error) from error
    return raw


def _set(raw: Raw, settings: dict[str, str]) -> None:
    """All in one round trip; on clusters that lack some, one by one."""
    calls = [f"set_config(${n}, ${n + 1}, false)" for n in range(1, 2 * len(settings), 2)]
    values = [text for setting in settings.items() for text in setting]
    try:
        raw.execute(f"SELECT {', '.join(calls)}", values, prepare=False)
    except (psycopg.errors.UndefinedObject, psycopg.errors.FeatureNotSupported):
        for name, value in settings.items():
            with suppress(psycopg.errors.UndefinedObject, psycopg.errors.FeatureNotSupported):
                raw.execute("SELECT set_config($1, $2, false)", (name, value), prepare=False)


def _rows(cursor: "psycopg.Cursor[Row]") -> list[Row]:
    result = cursor.pgresult  # its `description` would make an object for each column
    return cursor.fetchall() if result is not None and result.nfields else []
