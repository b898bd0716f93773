"""Fixtures of the session service's tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sessiond.sqlite import SqliteStore
from tests.pki import Pki
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk
from tests.sessiond.serving import Serving, serving


@pytest.fixture
def clock() -> FakeClock:
    """Time, which stands still until moved."""
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[SqliteStore]:
    """An empty store."""
    store = SqliteStore(tmp_path / "sessions.db", clock)
    yield store
    store.close()


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A trust domain."""
    return Pki(tmp_path / "pki")


@pytest.fixture
async def sessions(tmp_path: Path, pki: Pki, clock: FakeClock) -> AsyncIterator[Serving]:
    """A sessiond that serves."""
    async with serving(tmp_path, pki, clock) as server:
        yield server


@pytest.fixture
def desk(store: SqliteStore, clock: FakeClock) -> Desk:
    """The rules on an empty store."""
    return Desk(store, clock)
