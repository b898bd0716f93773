"""What the tests of the operator's side share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.command import Command
from tests.operator.fakes import House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A trust domain whose sessiond serves."""
    house = House(tmp_path)
    async with house.serve_sessiond():
        yield house


@pytest.fixture
def carpal(tmp_path: Path) -> Command:
    """The command, with the house's state folder."""
    return Command(tmp_path, {"CARPAL_STATE": str(tmp_path / "state")})
