"""The session store on PostgreSQL: one database, served by several sessiond processes at once.

Rows that a transaction will change are locked in the order of their ids, so positions stay
gapless and nobody waits in a ring. Leases expire by the database's clock.
"""

import logging
import time
import weakref
from collections.abc import Callable, Collection, Sequence

import psycopg

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from sessiond.clock import SECOND, Clock
from sessiond.postgres import schema as postgres_schema
from sessiond.postgres.clock import PostgresClock
from sessiond.postgres.connection import APPLICATION, NOW, WRITE, PostgresConnection, Raw
from sessiond.postgres.errors import NoAccess
from sessiond.postgres.follow import Follower
from sessiond.rows import Changes, Needs
from sessiond.sql.fence import Fenced, fence
from sessiond.sql.reader import SqlReader
from sessiond.sql.transaction import SqlTransaction
from sessiond.store import Reader, StoreBroken, StoreFull, StoreUnavailable, Transaction
from sessiond.store_url import name

_log = logging.getLogger(__name__)

_STARTED = "SELECT CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT)"
_SERVED = "SELECT value FROM meta WHERE key = 'incarnation' FOR UPDATE"
_NOTE_SERVED = (
    "INSERT INTO meta (key, value) VALUES ('incarnation', $1) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_NEWEST = "SELECT expires - term, term FROM leases WHERE state = 0 ORDER BY 1 DESC LIMIT 1"
"""When a lease was last granted or renewed."""
_EXTEND_AGAIN = 60 * SECOND
"""The longest term there is."""
_EXTENDED = "SELECT value FROM meta WHERE key = 'extended' FOR UPDATE"
_NOTE_EXTENDED = (
    "INSERT INTO meta (key, value) VALUES ('extended', $1) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_EXTEND = "UPDATE leases SET expires = term + $1 WHERE state = 0"
_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = $1 AND pid <> pg_backend_pid()"
)
_LOOKS, _LOOK_AGAIN = 20, 0.1
"""For others that are connected: how often, and seconds between."""
_NO_BACKOFF = "UPDATE sessions SET not_before = NULL WHERE not_before IS NOT NULL"


class PostgresStore:
    """Implements `store.Store`."""

    def __init__(self, url: str, clock: Clock | None = None, *, listen: bool = True) -> None:
        """Connect, and make the tables in an empty database.

        UNREACHABLE when it does not answer; CONFIG_INVALID when it is another's. `clock`
        takes the place of the database's; without `listen`, others' commits are polled for.
        """
        self._where = name(url)
        self._url = url
        self._is_open = False
        self._own_clock = PostgresClock()
        self.clock: Clock = clock or self._own_clock
        self._connection = PostgresConnection(url, self._opened)
        self._transaction = SqlTransaction(
            self._connection, blob="BYTEA", sole_writer=False, chunked=False
        )
        self._follower = Follower(url, self._own_clock, listen=listen)
        try:
            self._connection.open()
        except NoAccess as error:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"{self._where} does not let sessiond in: {_line(error)}",
                action="check user and password, and who may connect (pg_hba.conf)",
            ) from None
        except StoreUnavailable as error:
            raise refuse(
                Reason.UNREACHABLE,
                f"{self._where} does not answer: {_line(error)}",
                action="check that it runs, and the URL",
            ) from None
        except (StoreBroken, StoreFull) as error:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"{self._where} cannot be used: {_line(error)}",
                action="check the rights of its user",
            ) from None
        self._is_open = True

    def restart(self) -> None:
        """See `store.Store`. By the database's clock it is done only when nobody served it before.

        Others that serve it take renewals. And a sessiond that starts again and again must
        not keep the lease of someone who is gone: so at most once in the longest term.
        """
        connection = self._connection
        connection.begin()
        try:
            if self.clock is not self._own_clock:
                self._extend(connection, self.clock.steady())
            else:
                now = int(connection.execute(NOW)[0][0]) * 1000
                newest = connection.execute(_NEWEST)
                extended = connection.execute(_EXTENDED)
                away = bool(newest) and now - newest[0][0] > newest[0][1] // 2
                if away and (not extended or now - extended[0][0] > _EXTEND_AGAIN):
                    self._extend(connection, now)
            connection.commit()
        finally:
            connection.rollback()
        self._transaction.forget()

    def _extend(self, connection: PostgresConnection, now: int) -> None:
        connection.execute(_EXTEND, (now,))
        connection.execute(_NO_BACKOFF)
        connection.execute(_NOTE_EXTENDED, (now,))
        _log.info("leases have one full term again", extra={"store": self._where})

    def fence(self, wall: int) -> Fenced:
        """After the database was restored by its own tools; see `sql.fence`.

        CONFIG_INVALID while a sessiond serves it.
        """
        try:
            if self._is_served():
                raise refuse(
                    Reason.CONFIG_INVALID,
                    f"{self._where} is served by a sessiond",
                    action="stop every sessiond first",
                )
            return fence(self._connection, wall)
        except (StoreBroken, StoreFull, StoreUnavailable) as error:
            raise refuse(
                Reason.INTERNAL,
                f"{self._where} was not fenced: {_line(error)}",
                action="run it again before any sessiond serves it",
            ) from None

    def _is_served(self) -> bool:
        """Whether another sessiond is connected, and stays so: one that ended takes a moment."""
        for _ in range(_LOOKS):
            try:
                if not self._connection.execute(_OTHERS, (APPLICATION,))[0][0]:
                    return False
            except StoreBroken:  # a cluster that is only compatible does not say
                return False
            time.sleep(_LOOK_AGAIN)
        return True

    def begin(self, needs: Sequence[Needs] = ()) -> Transaction:
        """See `store.Store`."""
        self._connection.begin()
        self._transaction.begin(self.clock.wall(), self.clock.steady(), needs)
        if self._connection.now is None or any(need.due for need in needs):
            # Nothing was loaded; or what is due came first, and the locks after it.
            self._connection.tell_time()
        now = self._connection.now
        assert now is not None
        self._own_clock.measured(now)
        if self.clock is self._own_clock:
            self._transaction.wall = self._transaction.steady = now
        return self._transaction

    def commit(self) -> Changes:
        """See `store.Store`."""
        changes = self._transaction.commit()
        self._follower.committed(changes)
        return changes

    def rollback(self) -> None:
        """See `store.Store`."""
        self._transaction.rollback()

    @property
    def erasing(self) -> bool:
        """See `store.Store`. Removing what no row holds any more is its server's own work."""
        return False

    def abandon(self) -> None:
        """See `store.Store`."""
        self._connection.abandon()

    def maintain(self) -> None:
        """See `store.Store`. The database does that itself."""

    def reader(self) -> Reader:
        """See `store.Store`."""
        connection = PostgresConnection(self._url)
        reader = SqlReader(connection)
        known = weakref.ref(reader)  # not a ring: who lets go of a reader closes it

        def opened(raw: Raw) -> None:
            """After a failover a number may be another name's: the last may not be there."""
            if (view := known()) is not None:
                view.forget()

        connection.opened = opened
        return reader

    async def follow(
        self,
        changed: Callable[[Changes], None],
        tailed: Callable[[], Collection[str]],
        known: Changes,
    ) -> None:
        """See `store.Store`."""
        await self._follower.run(changed, tailed, known)

    async def up_to_date(self) -> None:
        """See `store.Store`."""
        await self._follower.up_to_date()

    def close(self) -> None:
        """See `store.Store`."""
        self._connection.close()

    def _opened(self, raw: Raw) -> None:
        """Of every connection to write by: after a failover it may be another server."""
        try:
            postgres_schema.prepare(raw, self._where)
        except CarpalError as error:
            if not self._is_open:
                raise
            raise StoreBroken(error.message) from error
        if self._is_open:
            self._transaction.forget()
        if self.clock is self._own_clock:
            self._extend_leases(raw)

    def _extend_leases(self, raw: Raw) -> None:
        """After a start or a failover of the database, every live lease gets one full term.

        Nobody could renew while it was away. Once for each of its starts: a sessiond that
        starts again and again must not keep the lease of someone who is gone.
        """
        started = _started(raw)
        raw.execute(WRITE)
        postgres_schema.alone(raw)
        served = raw.execute(_SERVED).fetchone()
        if started is None or served != (started,):
            (now,) = raw.execute(NOW).fetchone() or (0,)
            raw.execute(_EXTEND, (now * 1000,))
            raw.execute(_NO_BACKOFF)
            raw.execute(_NOTE_EXTENDED, (now * 1000,))
            raw.execute(_NOTE_SERVED, (started or 0,))
            _log.info("leases have one full term again", extra={"store": self._where})
        raw.execute("COMMIT")


def _started(raw: Raw) -> int | None:
    """When the server started, which tells its incarnations apart; None when it does not say."""
    try:
        row = raw.execute(_STARTED).fetchone()
    except (psycopg.errors.UndefinedFunction, psycopg.errors.FeatureNotSupported):
        return None
    return int(row[0]) if row else None


def _line(error: Exception) -> str:
    """What it says, in one line."""
    return "; ".join(str(error).split("\n")).strip()
