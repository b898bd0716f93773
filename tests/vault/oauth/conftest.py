"""A vault with an authorization server, for tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.vault.oauth.world import World, world


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made
