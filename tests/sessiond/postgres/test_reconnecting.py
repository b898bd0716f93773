"""A connection that is made anew may lead to another server: nothing is taken for known."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from sessiond.postgres.store import PostgresStore
from sessiond.rows import Needs, SliceQuery
from sessiond.sql.schema import VERSION
from sessiond.store import StoreBroken, StoreUnavailable
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk, message

Tool = psycopg.Connection[Any]
_END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def tool(postgres_url: str) -> Iterator[Tool]:
    """Another hand on a database of this test's own."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def test_a_database_that_became_newer_breaks_the_store_in_words(
    postgres_url: str, tool: Tool
) -> None:
    with closing(PostgresStore(postgres_url)) as store:
        tool.execute("UPDATE meta SET value = %s WHERE key = 'version'", (VERSION + 1,))
        tool.execute(_END_OTHERS)
        with pytest.raises(StoreUnavailable):
            store.begin([Needs(sessions=("sesn_1",))])
        store.rollback()
        with pytest.raises(StoreBroken) as error:
            store.begin()
    assert "was written by a newer sessiond" in str(error.value)
    assert "CarpalError" not in str(error.value)


def test_names_are_read_again_by_a_new_connection(postgres_url: str, tool: Tool) -> None:
    with closing(PostgresStore(postgres_url, FakeClock())) as store:
        desk = Desk(store, FakeClock())
        desk.create("sesn_1", message("a"))
        session = desk.session()
        reader = store.reader()
        with closing(reader):
            (before,) = reader.slice(session, SliceQuery()).events
            tool.execute("DELETE FROM names WHERE text = %s", (before.source,))
            tool.execute(_END_OTHERS)
            with pytest.raises(StoreUnavailable):
                reader.slice(session, SliceQuery())
            with pytest.raises(Exception, match="a name is missing"):
                reader.slice(session, SliceQuery())
