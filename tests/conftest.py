"""Fixtures every test may use."""

import pytest

pytest_plugins = ["tests.pace", "tests.parts"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Async tests run on asyncio, as the processes do."""
    return "asyncio", {"use_uvloop": False}
