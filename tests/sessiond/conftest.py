"""Fixtures of the session service's tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessiond.sqlite.store import SqliteStore
from sessiond.store import Store
from tests.pki import Pki
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk
from tests.sessiond.serving import Serving, serving

if TYPE_CHECKING:
    from tests.postgres import Cluster
    from tests.sessiond.stores import EmptyDatabase, OpenStore


@pytest.fixture
def clock() -> FakeClock:
    """Time, which stands still until moved."""
    return FakeClock()


@pytest.fixture(scope="session")
def empty_database(postgres: "Cluster") -> "EmptyDatabase":
    """One PostgreSQL database for all tests of a worker, one after the other."""
    from tests.sessiond.stores import EmptyDatabase

    return EmptyDatabase(postgres)


@pytest.fixture
def database(empty_database: "EmptyDatabase") -> str:
    """The URL of that database, with sessiond's tables and nothing in them."""
    return empty_database.emptied()


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> "OpenStore":
    """Opens a store that is empty at first; a test that uses it is held against both."""
    if request.param == "sqlite":
        return lambda clock: SqliteStore(tmp_path / "sessions.db", clock)
    from sessiond.postgres.store import PostgresStore

    url: str = request.getfixturevalue("database")
    return lambda clock: PostgresStore(url, clock)


@pytest.fixture
def store(open_store: "OpenStore", clock: FakeClock) -> Iterator[Store]:
    """An empty store."""
    store = open_store(clock)
    yield store
    store.close()


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A trust domain."""
    return Pki(tmp_path / "pki")


@pytest.fixture
async def sessions(open_store: "OpenStore", pki: Pki, clock: FakeClock) -> AsyncIterator[Serving]:
    """A sessiond that serves."""
    async with serving(open_store, pki, clock) as server:
        yield server


@pytest.fixture
def desk(store: Store, clock: FakeClock) -> Desk:
    """The rules on an empty store."""
    return Desk(store, clock)
