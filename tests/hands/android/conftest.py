"""Phones behind the stand-in of `adb`, a daemon's service with the type, and its hands."""

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from carpal.v1 import hand_pb2 as pb
from hands.android import said
from hands.builtin import kept_units
from hands.builtin.plugin import PluginType
from hands.folder_blobs import FolderBlobs
from hands.inside import tree
from tests.hands.android import stand_in
from tests.hands.place import Place, open_place, until

SIZE = (1080, 2400)
"""Pixels of a phone's screen."""
SEEN = (706, 1568)
"""Of a screenshot of it."""
TARGET = "hands.android.hand:Android"


class Rack:
    """Phones, and the `adb` that reaches them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        inside = self.programs / "phone"
        inside.mkdir(parents=True)
        source = Path(stand_in.__file__).read_text()
        adb = self.programs / "adb"
        adb.write_text(f"#!{sys.executable} -IS\n{source}")
        adb.chmod(0o755)
        for name in stand_in.PROGRAMS:
            os.link(adb, inside / name)  # no link by name, behind which it would not know its own
        (self.programs / "world.json").write_text(json.dumps({"server": True, "phones": {}}))

    def phone(self, serial: str, **more: Any) -> str:
        """Plug one in, or change it; the id of its unit."""
        new = {
            "state": "device",
            "size": SIZE,
            "front": "com.example.notes",
            "apps": ["com.example.notes", "com.android.settings"],
            "own": ["com.example.notes", "com.example.hidden"],
            "running": ["com.example.notes", "com.example.hidden", "com.android.settings"],
            "broken": [],
            "stuck": [],
            "once": [],
            "old": False,
            "properties": {
                "ro.product.model": f"Model {serial[-1]}",
                "ro.product.manufacturer": "Example",
                "ro.build.version.release": "14",
                "ro.build.version.sdk": "34",
                "sys.boot_completed": "1",
            },
            **{each: [] for each in ("touched", "swiped", "keys", "said")},
            "typed": "",
        }
        with stand_in.world(self.programs) as world:
            world["phones"][serial] = {**world["phones"].get(serial, new), **more}
        return said.unit_id(serial)

    def unplug(self, serial: str) -> None:
        """It is gone."""
        with stand_in.world(self.programs) as world:
            del world["phones"][serial]

    def server(self, runs: bool) -> None:
        """Whether adb's server runs."""
        with stand_in.world(self.programs) as world:
            world["server"] = runs

    def see(self, serial: str) -> dict[str, Any]:
        """What is so on a phone."""
        with stand_in.world(self.programs) as world:
            found: dict[str, Any] = world["phones"][serial]
        return found

    def faults(self, **faults: dict[str, str]) -> None:
        """What goes wrong from now on, by serial (`all` for each) and verb; nothing else does."""
        named = {"*" if who == "all" else who: how for who, how in faults.items()}
        new = self.programs / "faults.new"
        new.write_text(json.dumps(named))
        new.rename(self.programs / "faults")

    def calls(self) -> list[list[Any]]:
        """Each call of adb so far: process, serial, verb and the rest."""
        path = self.programs / "calls"
        return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []

    async def nothing_runs(self) -> None:
        """Each process that adb was, and each that it started, has ended."""
        path = self.programs / "children"
        children = path.read_text().split() if path.exists() else []
        every = [each[0] for each in self.calls()] + [int(each) for each in children]
        for pid in every:
            await until(lambda pid=pid: tree.find(pid) is None, f"process {pid} is left")


@dataclass
class Lab:
    """A daemon's service that reaches the rack."""

    rack: Rack
    place: Place
    blobs: Path
    kind: PluginType

    async def hand(self, serial: str) -> "Held":
        """A new hand that has that phone."""
        asked = pb.ProvisionRequest(
            driver=self.place.driver(),
            hand_id=self.place.new_id("h"),
            type="android",
            config=json.dumps({"unit": {"serial": serial}}).encode(),
        )
        asked.orphan_deadline.FromSeconds(60)
        note = (await self.place.provision(asked)).note
        return Held(self, asked.hand_id, note, serial)

    def info(self, serial: str) -> pb.UnitInfo:
        """A phone as the daemon shows it."""
        every = self.place.inventory.units.infos("android")
        (found,) = [each for each in every if each.unit_id == said.unit_id(serial)]
        return found


@dataclass
class Held:
    """One hand."""

    lab: Lab
    hand: str
    note: str
    serial: str

    async def call(self, tool: str, **given: Any) -> pb.Result:
        """A call's result."""
        return await self.lab.place.run(self.hand, tool, **given)

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

    async def picture(self, tool: str = "screenshot", **given: Any) -> Image.Image:
        """The picture that a call attaches."""
        result = await self.call(tool, **given)
        assert result.outcome == pb.OUTCOME_OK, result.content
        (found,) = result.attachments
        with Image.open(self.lab.blobs / found.digest.hex()) as picture:
            return picture.convert("RGB")

    @property
    def phone(self) -> dict[str, Any]:
        """What is so on its phone."""
        return self.lab.rack.see(self.serial)


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    """Two phones, of which one is reached by the network; its adb is the first of the PATH."""
    found = Rack(tmp_path / "rack")
    found.phone("R58M1")
    found.phone("10.0.0.7:5555")
    monkeypatch.setenv("PATH", f"{found.programs}:{os.environ['PATH']}")
    assert shutil.which("adb") == str(found.programs / "adb")
    return found


@pytest.fixture
async def lab(rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    """With the type."""
    monkeypatch.setattr(kept_units, "AGAIN", 0.5)
    types = {"android": PluginType("android", TARGET)}
    blobs = FolderBlobs(tmp_path / "blobs")
    async with open_place(tmp_path / "state", more=types, blobs=blobs) as place:
        yield Lab(rack, place, tmp_path / "blobs", types["android"])


@pytest.fixture
async def held(lab: Lab) -> Held:
    """A hand that has the phone on the cable."""
    return await lab.hand("R58M1")
