"""Fixtures: a daemon's hand service over real supervisors, and one process hand in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hands.place import Place, open_place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A service of its own, on a state folder of its own."""
    async with open_place(tmp_path / "state") as opened:
        yield opened


@pytest.fixture
async def hand(place: Place) -> str:
    """A process hand's id."""
    return await place.hand()
