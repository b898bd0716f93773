"""Fixtures: a private engine with images, and a daemon's hand service with containers on it."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hands.builtin.container import ContainerType
from tests import engine as engines
from tests import images
from tests.engine import Engine
from tests.hands.place import Place, open_place


@pytest.fixture(scope="package")
def engine() -> Iterator[Engine]:
    """One for all tests of a worker here; who kills it starts it again."""
    if why := engines.missing():
        pytest.skip(why)
    with engines.engine() as made:
        images.add_shell(made.client)
        images.add_busybox(made.client)
        yield made


@pytest.fixture(scope="package")
def kind(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> ContainerType:
    """The type, on that engine; its Python is brought along once for all tests."""
    return ContainerType(engine.url, pythons=tmp_path_factory.mktemp("pythons"))


@pytest.fixture
def state() -> Iterator[Path]:
    """A daemon's folder."""
    folder = Path(tempfile.mkdtemp(prefix="carpal-box-", dir="/tmp"))
    try:
        yield folder / "state"
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def boxes(engine: Engine, kind: ContainerType, state: Path) -> AsyncIterator[Place]:
    """A service that has container hands."""
    async with open_place(state, more={"container": kind}) as place:
        yield place
        for row in place.journal.hands():
            await place.release(row.hand_id)
    assert not engine.containers()


async def box(place: Place, image: str = images.SHELL, **given: object) -> str:
    """A new container hand's id."""
    return await place.hand(type="container", image=image, **given)  # type: ignore[arg-type]
