"""Worlds for interaction tests: one for all tests of a file that break nothing in it."""

from collections.abc import AsyncIterator

import pytest

from tests.world import World, world


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """As everywhere, for as long as a world lasts."""
    return "asyncio", {"use_uvloop": False}


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world with two brains, shared: kill nothing in it."""
    state = tmp_path_factory.mktemp("whole") / "state"
    async with world(state, brains=("b1", "b2")) as running:
        yield running
