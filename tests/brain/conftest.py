"""Fixtures of the brain's tests: a real sessiond in this process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.brain.stage import Stage, stage
from tests.pki import Pki
from tests.sessiond.clocks import FakeClock
from tests.sessiond.serving import Serving, serving


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A trust domain."""
    return Pki(tmp_path / "pki")


@pytest.fixture
async def sessions(tmp_path: Path, pki: Pki) -> AsyncIterator[Serving]:
    """A sessiond that serves."""
    async with serving(tmp_path, pki, FakeClock()) as server:
        yield server


@pytest.fixture
async def driven(sessions: Serving) -> AsyncIterator[Stage]:
    """A session that is driven, with scripted hands."""
    async with stage(sessions) as made:
        yield made
