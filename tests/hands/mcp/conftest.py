"""A daemon's service with the type, and hands of it that are a server of ours."""

import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin.mcp import McpType
from hands.folder_blobs import FolderBlobs
from hands.isolation import bwrap, probe
from tests.hands.place import Place, open_place
from tests.leftovers import nothing_orphaned

SERVER = Path(__file__).with_name("server.py")
PROBLEM = probe.problem()


@dataclass
class Servers:
    """Where hands are."""

    place: Place
    folder: Path

    def order(self, *arguments: str, **config: Any) -> pb.ProvisionRequest:
        """A hand whose server is ours; `config` adds to what says so, or takes its place."""
        ours = {"command": [bwrap.hosting_python(), "/workspace/server.py", *arguments]}
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
        return folder


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    """At the end nothing is left of its hands."""
    if PROBLEM:
        pytest.skip(PROBLEM)
    kind, state = McpType(), tmp_path / "state"
    blobs = FolderBlobs(tmp_path / "blobs")
    try:
        async with open_place(state, more={"mcp": kind}, blobs=blobs) as place:
            yield Servers(place, tmp_path)
    finally:
        for folder in (state / "hands").iterdir():
            await kind.reap(folder.name, folder)
    await nothing_orphaned(state)
