"""Plugins as tests write them: a module in a folder that Python finds."""

import asyncio
import os
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.blobs import Blobs
from hands.builtin.plugin import PluginType
from tests.hands.place import PATIENCE, Place, open_place
from tests.pace import SCALE

LIMIT = 10.0 * SCALE
"""Seconds for a plugin to say what it is: ours do so in one, on a loaded machine in three."""
IMPORTS = """
import asyncio, ctypes, json, os, signal, subprocess, sys, threading, time
from typing import Annotated, Literal, TypedDict
from hands.api import Cancelled, Context, HandLost, HandType, ToolError, tool
"""


class Plugins:
    """A folder of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.folder = folder
        paths = (str(folder), os.environ.get("PYTHONPATH", ""))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    def write(self, name: str, source: str, **more: Any) -> PluginType:
        """A module, and the type that its class `It` is."""
        (self.folder / f"{name}.py").write_text(IMPORTS + textwrap.dedent(source))
        return PluginType(name, f"{name}:It", **{"limit": LIMIT, **more})

    @asynccontextmanager
    async def place(self, *types: PluginType, **more: Any) -> AsyncIterator[Place]:
        """A daemon's service that has these types, by the names of their modules."""
        named = {kind.describe().type: kind for kind in types}
        state = self.folder.parent / "state"
        async with open_place(state, more=named, blobs=Blobs(0.0), hands_max=100, **more) as place:
            yield place


class Steady:
    """A hand of another type that is asked all the time, and must answer all the time."""

    def __init__(self) -> None:
        self.answers = 0
        self.slowest = 0.0

    @asynccontextmanager
    async def serving(self, place: Place) -> AsyncIterator[None]:
        """It serves throughout the block, and more than once."""
        hand = await place.hand()
        asking = asyncio.create_task(self._ask(place, hand))
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.wait({asking})
        if not asking.cancelled():
            asking.result()  # what it failed with
        assert self.answers > 1

    async def _ask(self, place: Place, hand: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            result = await place.sh(hand, "echo steady")
            assert (result.outcome, result.content) == (pb.OUTCOME_OK, "steady\n")
            self.slowest = max(self.slowest, loop.time() - began)
            self.answers += 1
            await asyncio.sleep(0.05)  # a pace, not a wait for anything


async def probe(place: Place, name: str) -> pb.ProbeResponse:
    """What Probe says of a type."""
    async with asyncio.timeout(PATIENCE):
        return await place.service.probe(pb.ProbeRequest(type=name))
