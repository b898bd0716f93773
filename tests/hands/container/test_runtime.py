"""The runtime a hand's config names: a stand-in called `runsc`, which is runc, in a real engine.

A gVisor that could serve hands comes with no package of Debian 12: of its own nothing is tested.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from hands.builtin import container
from hands.builtin.container import ContainerType
from tests import engine as engines
from tests import images
from tests.engine import Engine
from tests.hands.place import Place, open_place

_STAND_IN = """#!/bin/sh
echo "$@" >>{said}
exec runc "$@"
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where the runtimes are."""
    with tempfile.TemporaryDirectory(prefix="carpal-runtime-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    """One that has a runtime called runsc."""
    if why := engines.missing():
        pytest.skip(why)
    runsc = folder / "runsc"
    runsc.write_text(_STAND_IN.format(said=folder / "said"))
    runsc.chmod(0o755)
    with engines.engine([f"--add-runtime=runsc={runsc}"]) as made:
        images.add_shell(made.client)
        # As under a runtime that keeps to itself what sockets its containers make.
        deaf = {"bin/bash": "#!/bin/sh\necho no socket of its leads here >&2\nexec /bin/sleep 60\n"}
        images.add_busybox(made.client, "carpal-test/deaf:1", deaf)
        yield made


@pytest.fixture
async def boxes(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A service with container hands on that engine."""
    top = Path(tempfile.mkdtemp(prefix="carpal-box-", dir="/tmp"))
    kind = ContainerType(engine.url, pythons=tmp_path_factory.getbasetemp() / "pythons")
    try:
        async with open_place(top / "state", more={"container": kind}) as place:
            yield place
            for row in place.journal.hands():
                await place.release(row.hand_id)
        assert not engine.containers()
    finally:
        shutil.rmtree(top)


@pytest.mark.slow
async def test_a_hand_runs_by_the_runtime_its_config_names_and_by_no_other(
    boxes: Place, folder: Path, engine: Engine
) -> None:
    said = folder / "said"
    usual = await boxes.hand(type="container", image=images.SHELL)
    assert not said.exists(), "unless it is named, the engine's own"
    assert (await boxes.sh(usual, "echo on")).content == "on\n"
    hand = await boxes.hand(type="container", image=images.SHELL, runtime="runsc")
    assert " create " in said.read_text()
    for place in ("/workspace", "~"):
        assert (await boxes.sh(hand, f"echo on >{place}/f; cat {place}/f")).content == "on\n"
    runtimes = {
        engine.client.api.inspect_container(each["Id"])["HostConfig"]["Runtime"]
        for each in engine.client.api.containers()
    }
    assert runtimes == {"runc", "runsc"}


@pytest.mark.slow
async def test_a_runtime_the_engine_lacks_is_refused_and_those_it_has_are_named(
    boxes: Place,
) -> None:
    with pytest.raises(CarpalError, match="runsc") as refused:
        await boxes.hand(type="container", image=images.SHELL, runtime="kata")
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.fields["field"] == "config.runtime"


@pytest.mark.slow
async def test_a_runsc_that_shows_no_socket_of_its_containers_makes_no_hand_and_it_is_said_why(
    boxes: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_READY_LIMIT", 2.0)
    with pytest.raises(CarpalError, match="--host-uds=all") as refused:
        await boxes.hand(type="container", image="carpal-test/deaf:1", runtime="runsc")
    assert refused.value.reason is Reason.PROVISION_FAILED
    with pytest.raises(CarpalError, match="was not ready") as refused:
        await boxes.hand(type="container", image="carpal-test/deaf:1")
    assert "uds" not in refused.value.message
