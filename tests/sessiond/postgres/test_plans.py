"""Each question to PostgreSQL walks an index, whatever the planner thinks of small tables."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sessiond.postgres.store import PostgresStore
from sessiond.rows import SliceQuery
from sessiond.sql import reader as sql_reader
from sessiond.sql.reader import slice_statement
from sessiond.sql.spans import Span
from sessiond.sql.transaction import BY_ID
from tests.sessiond.desk import Desk, message
from tests.sessiond.stores import OpenStore

Tool = psycopg.Connection[Any]


@pytest.fixture
def open_store(database: str) -> OpenStore:
    """These promises are this store's own."""
    return lambda clock: PostgresStore(database, clock)


@pytest.fixture
def tool(database: str) -> Iterator[Tool]:
    """Another hand on the database."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("types", [None, [1], [1, 2], ("user.*", "agent.message")])
def test_a_slice_walks_one_index_even_if_the_plan_was_made_on_a_small_table(
    desk: Desk, tool: Tool, types: sql_reader.Types, *, newest_first: bool
) -> None:
    desk.create("sesn_1", message("a"))
    tool.execute("ANALYZE events")
    query = SliceQuery(newest_first=newest_first)
    statement, values = slice_statement(1, Span(0, 0, 100_000), query, types)
    connection = desk.store.reader()._connection  # type: ignore[attr-defined]
    plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {statement}", values))
    assert f"Index Scan{' Backward' if newest_first else ''} using events_by_position" in plan
    assert "Sort" not in plan


def test_an_id_that_many_sessions_use_is_looked_for_in_one_by_an_index(desk: Desk) -> None:
    connection = desk.store.reader()._connection  # type: ignore[attr-defined]
    plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {BY_ID}", ("a", 1)))
    assert "Index Scan using events_by_id" in plan
    assert "Filter" not in plan


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (sql_reader._WITH_WORK, "sessions_with_work"),
        (sql_reader._LIVE, "leases_that_live"),
    ],
)
def test_what_is_looked_at_again_and_again_has_an_index(
    desk: Desk, statement: str, index: str
) -> None:
    connection = desk.store.reader()._connection  # type: ignore[attr-defined]
    plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {statement}"))
    assert index in plan
