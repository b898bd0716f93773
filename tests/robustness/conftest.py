"""Fixtures of the tests that kill, stop and starve what serves."""

import random
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.pace import SEED
from tests.robustness.service import Service, service


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers; a test that fails says what they began with."""
    seed = SEED or secrets.randbits(32)
    request.node.add_report_section("setup", "seed", f"CARPAL_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each store: empty for a file of SQLite, or the URL of an empty PostgreSQL database."""
    if request.param == "sqlite":
        return ""
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def one(tmp_path: Path, store_url: str) -> AsyncIterator[Service]:
    """One process on each store, which serves."""
    async with service(tmp_path, store_url) as made:
        await made.start_all()
        yield made


@pytest.fixture
async def each(tmp_path: Path, store_url: str) -> AsyncIterator[Service]:
    """As many processes on each store as it can have: one on a file, two on a database."""
    async with service(tmp_path, store_url, processes=2 if store_url else 1) as made:
        await made.start_all()
        yield made
