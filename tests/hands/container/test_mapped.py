"""An engine that maps the users of its containers: hands are mapped too, and keep their files."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin.container import ContainerType
from hands.isolation import uids
from tests import engine as engines
from tests import images
from tests.engine import Engine
from tests.hands.place import Place, open_place

FIRST = 200_000
RANGE = f"nobody:{FIRST}:65536\n"


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A folder in which the engine, which has mounts of its own, sees what is mounted."""
    if why := engines.missing():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="carpal-box-", dir="/tmp"))
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "--make-shared", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder)


@pytest.fixture
def state(shared: Path) -> Iterator[Path]:
    """A daemon's folder."""
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder) / "state"


@pytest.fixture(scope="module")
def mapping(shared: Path) -> Iterator[Engine]:
    """It maps users to those from FIRST on."""
    etc = {"subuid": RANGE, "subgid": RANGE}
    with engines.engine(["--userns-remap=nobody:nogroup"], etc) as made:
        images.add_shell(made.client)
        yield made


@pytest.fixture
async def mapped(
    mapping: Engine, state: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    """A service with hands on it."""
    kind = ContainerType(mapping.url, pythons=tmp_path_factory.mktemp("pythons"))
    async with open_place(state, more={"container": kind}) as place:
        yield place
        for row in place.journal.hands():
            await place.release(row.hand_id)
    assert not mapping.containers()


async def made(place: Place, **given: object) -> tuple[str, pb.ProvisionResult]:
    """A hand, and what was said of it."""
    hand = await place.hand(type="container", image=images.SHELL, **given)  # type: ignore[arg-type]
    row = place.journal.hand(hand)
    assert row is not None
    return hand, pb.ProvisionResult.FromString(row.result)


@pytest.mark.slow
async def test_hands_of_an_engine_that_maps_users_are_mapped_each_to_its_own(
    mapped: Place, state: Path
) -> None:
    owners = set()
    for _ in range(2):
        hand, told = await made(mapped)
        owner = uids.owner(state / "hands" / hand)
        owners.add(owner)
        assert FIRST < owner < FIRST + 65_536
        assert (await mapped.sh(hand, "id -u; whoami")).content == f"{owner - FIRST}\nhand\n"
        ran = await mapped.sh(hand, "echo x >~/h; echo x >/tmp/t; echo ok >f; cat f")
        assert ran.content == "ok\n"
        await mapped.run(hand, "write", file_path="by-tool", content="x")
        workspace = state / "hands" / hand / "workspace"
        assert {path.stat().st_uid for path in workspace.iterdir()} == {owner}
        ids = Path(f"/proc/{mapped.supervisor(hand)}/uid_map").read_text().split()
        assert ids == ["0", str(FIRST), "65536"]
        assert not any("mapping" in each for each in told.not_enforced)
    assert len(owners) == 2


@pytest.mark.slow
async def test_a_hands_disk_is_its_mapped_users(mapped: Place) -> None:
    hand, _ = await made(mapped, limits={"disk_bytes": 32 << 20, "memory_bytes": 256 << 20})
    full = await mapped.sh(hand, "dd if=/dev/zero of=f bs=1M count=200; rm f; echo x >~/h; echo ok")
    assert "No space left on device" in full.content
    assert full.content.endswith("ok\n")


@pytest.mark.slow
async def test_a_workspace_of_somebody_outside_the_mapping_is_served_without_it_and_told(
    mapped: Place, state: Path
) -> None:
    owned = state.parent / "owned"
    owned.mkdir()
    os.chown(owned, 12345, 100)
    hand, told = await made(mapped, workspace=str(owned))
    await mapped.sh(hand, "echo hi >by-bash")
    found = (owned / "by-bash").stat()
    assert (found.st_uid, found.st_gid) == (12345, 100)
    assert any("mapping of users is off" in each for each in told.not_enforced)
