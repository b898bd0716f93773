"""Fixtures every test may use."""

import os
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.postgres import Cluster  # loads the client, which few tests need

# Most tests look into hands from outside, or arm a fault point in one. Those of the sandbox ask
# for it; children that tests start get this too.
os.environ.setdefault("CARPAL_SANDBOX", "off")

pytest_plugins = ["tests.order", "tests.pace", "tests.parts", "tests.packaging.bundles"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Async tests run on asyncio, as the processes do."""
    return "asyncio", {"use_uvloop": False}


@pytest.fixture(scope="session", autouse=True)
def _machine_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No command of a test is refused a unit for a daemon of a test beside it, or of a person."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CARPAL_TEST_NOTES", str(tmp_path_factory.mktemp("notes")))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator["Cluster"]:
    """A PostgreSQL of our own that serves; one for all tests of a worker, so kill another."""
    from tests import postgres

    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not on this machine: Debian's package `postgresql` brings it")
    with postgres.cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres: "Cluster") -> Iterator[str]:
    """The URL of a database that is empty, and removed after the test."""
    name = f"test_{secrets.token_hex(6)}"
    yield postgres.database(name)
    postgres.drop(name)


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """A test that runs a server's own beginning in this process leaves the next its umask."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
