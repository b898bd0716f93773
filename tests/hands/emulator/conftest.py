"""A daemon's service with the type, and one console of it."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from carpal.v1 import hand_pb2 as pb
from hands.builtin.plugin import PluginType
from hands.folder_blobs import FolderBlobs
from tests.cartridge import cartridge
from tests.hands.place import Place, open_place


@dataclass
class Arcade:
    """Where consoles are."""

    place: Place
    folder: Path

    async def console(self, *mounts: tuple[str, bytes], **config: object) -> "Console":
        """A new one; by default with the game in it."""
        blobs = FolderBlobs(self.folder / "blobs")
        asked = pb.ProvisionRequest(
            driver=self.place.driver(),
            hand_id=self.place.new_id("h"),
            type="emulator",
            config=json.dumps(config or {"cartridge": str(self.game)}).encode(),
        )
        for path, data in mounts:
            digest = await blobs.put(data)
            asked.mounts.append(pb.Mount(source_ref=f"blob:{digest}", mount_path=path))
        asked.orphan_deadline.FromSeconds(60)
        result = await self.place.provision(asked)
        return Console(self, asked.hand_id, result.note)

    @property
    def game(self) -> Path:
        """The game, as a file of the machine."""
        return self.folder / "cartridges" / "game.gb"


@dataclass
class Console:
    """One hand."""

    arcade: Arcade
    hand: str
    note: str

    async def call(self, tool: str, **given: Any) -> pb.Result:
        """A call's result."""
        return await self.arcade.place.run(self.hand, tool, **given)

    async def does(self, tool: str, **given: Any) -> str:
        """What a call that goes well says."""
        result = await self.call(tool, **given)
        assert result.outcome == pb.OUTCOME_OK, result.content
        return result.content

    async def fails(self, tool: str, **given: Any) -> str:
        """What a call that fails says."""
        result = await self.call(tool, **given)
        assert result.outcome == pb.OUTCOME_ERROR, result.content
        return result.content

    async def memory(self, address: int, length: int = 1) -> list[int]:
        """Bytes of it."""
        said = await self.does("read_memory", address=address, length=length)
        return [int(each, 16) for line in said.splitlines() for each in line[6:].split()]

    async def attached(self, tool: str, **given: Any) -> tuple[pb.Attachment, Path]:
        """What a call attaches, and the file of its bytes."""
        result = await self.call(tool, **given)
        (found,) = result.attachments
        return found, self.arcade.folder / "blobs" / found.digest.hex()

    async def picture(self, tool: str = "screenshot", **given: Any) -> Image.Image:
        """The picture that a call attaches."""
        found, path = await self.attached(tool, **given)
        assert found.media_type == "image/png"
        with Image.open(path) as picture:
            return picture.convert("RGB")


@pytest.fixture
async def arcade(tmp_path: Path) -> AsyncIterator[Arcade]:
    """With a game on the machine's disk."""
    types = {"emulator": PluginType("emulator", "hands.emulator.hand:Emulator")}
    blobs = FolderBlobs(tmp_path / "blobs")
    async with open_place(tmp_path / "state", more=types, blobs=blobs) as place:
        found = Arcade(place, tmp_path)
        found.game.parent.mkdir()
        found.game.write_bytes(cartridge())
        yield found


@pytest.fixture
async def console(arcade: Arcade) -> "Console":
    """One with the game in it."""
    return await arcade.console()
