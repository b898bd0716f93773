"""The contract's checks, over the wire, against the real process on each store.

They are what `carpal sessiond check` runs against anyone's service; here each is a test.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpal.identity import Role
from sessiond.conformance import callers
from sessiond.conformance.callers import SEATS, Caller
from sessiond.conformance.group import Check
from sessiond.conformance.run import SECONDS, judge
from sessiond.conformance.suite import CHECKS
from tests.pace import SCALE
from tests.pki import Pki
from tests.world import World

if TYPE_CHECKING:
    from tests.postgres import Cluster

Flags = Callable[[pytest.FixtureRequest], tuple[str, ...]]
STORES: dict[str, Flags] = {
    "sqlite": lambda request: (),
    "postgresql": lambda request: ("--config", request.getfixturevalue("store_config")),
}
"""What `carpal sessiond run` is told, by store; a fixture may be asked for."""
OTHERS = {"brain-2": "check-2", "other-operator": "other"}
"""Names that differ from the first of their role."""

pytestmark = pytest.mark.timeout(3 * SECONDS)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """One loop for all of them: they share a process and connections."""
    return "asyncio", {"use_uvloop": False}


@pytest.fixture(scope="module")
def store_config(postgres: "Cluster", tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file that names an empty database, with its password."""
    path = tmp_path_factory.mktemp("store") / "sessiond.toml"
    path.touch(mode=0o600)
    path.write_text(f'store = "{postgres.database("contract")}"\n')
    return str(path)


@pytest.fixture(scope="module", params=sorted(STORES))
async def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Caller]]:
    """A sessiond that runs, and all who may call it."""
    root = tmp_path_factory.mktemp("contract")
    pki, state = Pki(root / "pki"), root / "state"
    pki.issue("sessiond", "sessiond", directory=state / "sessiond" / "identity")
    issue(pki, root / "identities")
    world = World(state, term=10.0)
    try:
        flags = ("--state-dir", str(state), "--listen", "127.0.0.1:0")
        store = STORES[request.param](request)
        running = await world.start("sessiond", "sessiond", "run", *flags, *store)
        found = callers.find(root / "identities")
        async with callers.connected(found, running.facts["address"]) as connected:
            yield connected
    finally:
        await world.end()


def issue(pki: Pki, directory: Path) -> None:
    """An identity for every seat."""
    for seat, role in SEATS.items():
        name = OTHERS.get(seat, "check-1")
        workspace = "" if role not in {Role.OPERATOR, Role.DAEMON} else f"ws-{name}"
        pki.issue(role, name, workspace, directory=directory / seat)


@pytest.mark.parametrize(
    "check",
    [pytest.param(check, id=f"{check.group}-{check.name}") for check in CHECKS],
)
async def test_the_service_keeps_the_contract(service: dict[str, Caller], check: Check) -> None:
    verdict = await judge(check, service, SCALE)
    assert verdict.verdict == "pass", f"{verdict.group}: {verdict.check}: {verdict.detail}"


def test_each_check_has_a_sentence_and_a_name_of_its_own() -> None:
    assert len({(check.group, check.sentence) for check in CHECKS}) == len(CHECKS)
    assert len({(check.group, check.name) for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert 20 < len(check.sentence) < 100, check.sentence
        assert check.sentence[0].isupper() or check.sentence[0] == "`", check.sentence
