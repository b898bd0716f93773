"""Fixtures: a daemon's hand service over real supervisors; a machine, and the brain it dials."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hands.fake_brain import FakeBrain, brain
from tests.hands.machine import Machine
from tests.hands.place import Place, open_place
from tests.pki import Pki


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A service of its own, on a state folder of its own."""
    async with open_place(tmp_path / "state") as opened:
        yield opened


@pytest.fixture
async def hand(place: Place) -> str:
    """A process hand's id."""
    return await place.hand()


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A trust domain."""
    return Pki(tmp_path / "pki")


@pytest.fixture
async def one(pki: Pki) -> AsyncIterator[FakeBrain]:
    """A brain."""
    async with brain(pki, "brain-1") as serving:
        yield serving


@pytest.fixture
async def machine(pki: Pki, tmp_path: Path, one: FakeBrain) -> AsyncIterator[Machine]:
    """A machine enrolled with that brain."""
    enrolled = Machine(pki, tmp_path / "state")
    enrolled.dials(one.address)
    yield enrolled
    enrolled.kill_hands()
