"""A daemon's service with the type, and hands of it that are a server of ours: in either place."""

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin.mcp import McpType
from hands.folder_blobs import FolderBlobs
from hands.isolation import bwrap, probe
from tests import engine as engines
from tests import images
from tests.engine import Engine
from tests.hands.place import Place, open_place
from tests.leftovers import nothing_orphaned

SERVER = Path(__file__).with_name("server.py")
RAW = Path(__file__).with_name("raw.py")
"""One that does what no library would let it: `server.py raw` is the same."""
PROBLEM = probe.problem()
_BROUGHT = "/opt/carpal/lib/loader --library-path /opt/carpal/lib /opt/carpal/bin/python3"
PACKAGES = "/opt/carpal-packages/0"
"""Where a container has the Python of its client, which serves for a server of ours too."""

in_both = pytest.mark.parametrize("servers", ["sandbox", "container"], indirect=True)
"""Tests that hold wherever the server runs."""
in_container = pytest.mark.parametrize("servers", ["container"], indirect=True)


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
def boxed(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> McpType:
    """The type, on that engine; its Python is brought along once for all tests."""
    return McpType(engine=engine.url, pythons=tmp_path_factory.mktemp("pythons"))


@dataclass
class Servers:
    """Where hands are."""

    place: Place
    folder: Path
    kind: McpType
    image: str = ""
    """Of the containers that the servers run in; empty for sandboxes."""

    def order(self, *arguments: str, **config: Any) -> pb.ProvisionRequest:
        """A hand whose server is ours; `config` adds to what says so, or takes its place."""
        ours: dict[str, Any] = {
            "command": [bwrap.hosting_python(), "/workspace/server.py", *arguments]
        }
        if self.image:
            ours["command"][:1] = _BROUGHT.split()
            ours["image"] = self.image
            config["env"] = {"PYTHONPATH": PACKAGES, **config.get("env", {})}
        given = {"workspace": str(self.workspace), **({} if "url" in config else ours), **config}
        request = pb.ProvisionRequest(
            driver=self.place.driver(),
            hand_id=self.place.new_id("h"),
            type="mcp",
            config=json.dumps(given).encode(),
        )
        request.orphan_deadline.FromSeconds(120)
        return request

    async def hand(self, *arguments: str, **config: Any) -> str:
        """A new one's id."""
        request = self.order(*arguments, **config)
        self.made = await self.place.provision(request)
        return request.hand_id

    @property
    def workspace(self) -> Path:
        """Their folder, with the server in it."""
        folder = self.folder / "work"
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o777)
            shutil.copy(SERVER, folder)
            shutil.copy(RAW, folder)
        return folder


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder, open to all: engines refuse long paths, and hands are users of their own."""
    folder = Path(tempfile.mkdtemp(prefix="carpal-mcp-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def servers(request: pytest.FixtureRequest, short: Path) -> AsyncIterator[Servers]:
    """At the end nothing is left of its hands."""
    in_container = getattr(request, "param", "sandbox") == "container"
    if PROBLEM and not in_container:
        pytest.skip(PROBLEM)
    kind = request.getfixturevalue("boxed") if in_container else McpType()
    state, blobs = short / "state", FolderBlobs(short / "blobs")
    try:
        async with open_place(state, more={"mcp": kind}, blobs=blobs) as place:
            yield Servers(place, short, kind, images.SHELL if in_container else "")
    finally:
        for folder in (state / "hands").iterdir():
            await kind.reap(folder.name, folder)
    await nothing_orphaned(state)
    if in_container:
        assert not request.getfixturevalue("engine").containers()
        assert not list(state.glob("hosted-containers/*"))
