"""What time it is, on PostgreSQL: what the database says, once a transaction has its locks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from sessiond.clock import SECOND
from sessiond.postgres.store import PostgresStore
from sessiond.rows import Needs
from tests.pace import AT_ONCE
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk

Tool = psycopg.Connection[Any]


@pytest.fixture
def tool(database: str) -> Iterator[Tool]:
    """Another hand on the database."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def test_time_is_the_databases(database: str, tool: Tool) -> None:
    with closing(PostgresStore(database)) as store:
        before = tool.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
        tx = store.begin()
        store.rollback()
        after = tool.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
        assert before is not None
        assert after is not None
        assert before[0] * SECOND <= tx.wall + 1000
        assert tx.wall <= after[0] * SECOND + 1000
        assert tx.steady == tx.wall
        assert abs(store.clock.steady() - tx.steady) < AT_ONCE * SECOND


@pytest.mark.parametrize("due", [False, True])
def test_the_time_of_a_transaction_is_when_it_had_its_locks(
    database: str, tool: Tool, *, due: bool
) -> None:
    needs = [Needs(sessions=("sesn_1",), due=due)]
    with closing(PostgresStore(database)) as one, closing(PostgresStore(database)) as other:
        Desk(one, FakeClock()).create("sesn_1")
        with ThreadPoolExecutor(1) as pool:
            one.begin(needs)
            begun = pool.submit(other.begin, needs)
            tool.execute(_UNTIL_ONE_WAITS)
            (waiting,) = tool.execute(
                "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
            ).fetchone() or (0,)
            one.rollback()
            assert begun.result(AT_ONCE).wall >= waiting * 1000
        other.rollback()


_UNTIL_ONE_WAITS = """DO $$ BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                    AND datname = current_database()) LOOP
    PERFORM pg_sleep(0.005);
    PERFORM pg_stat_clear_snapshot();
  END LOOP;
END $$"""
