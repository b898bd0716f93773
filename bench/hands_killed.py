"""A hand of each type whose supervisor is killed in the middle of a call: what is left of them?

Processes, control groups, folders and sockets below a daemon's state folder, and containers. All is
looked at again and again for as long as a hand may take to end.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError
from carpal.v1 import hand_pb2
from tests import mcp_servers
from tests.cartridge import cartridge
from tests.engine import Engine
from tests.hands.browser.site import site
from tests.hands.place import Place, until
from tests.images import SHELL
from tests.leftovers import orphans

_GONE = 5.0
"""Seconds in which all of a hand is gone."""
_LOOK = 0.2


async def killed(place: Place, folder: Path) -> None:
    """Make them, have each do something that lasts, kill it there, and release it."""
    game = folder / "killed.gb"
    game.write_bytes(cartridge())
    server = await asyncio.to_thread(mcp_servers.command, "everything")
    lasting = {"duration": 100, "steps": 100}
    async with site() as there:
        url = there.url("/never")
        for kind, config, tool, given in (
            ("process", {}, "bash", {"command": "sleep 100 & setsid sleep 100; wait"}),
            ("container", {"image": SHELL}, "bash", {"command": "sleep 100 & wait"}),
            ("emulator", {"cartridge": str(game)}, "wait", {"duration": 100}),
            ("mcp", {"command": server}, "trigger-long-running-operation", lasting),
            ("browser", {"egress": [there.rule]}, "navigate", {"url": url}),
        ):
            await _killed(place, kind, dict(config), tool, dict(given))


async def _killed(
    place: Place, kind: str, config: dict[str, Any], tool: str, given: dict[str, Any]
) -> None:
    hand = await place.hand(type=kind, **config)
    request = hand_pb2.ExecuteRequest(
        driver=place.driver(),
        hand_id=hand,
        call_id=place.new_id("c"),
        name=tool,
        input=json.dumps(given).encode(),
    )
    call = place.begin(request)

    def runs() -> bool:
        row = place.journal.call(hand, request.call_id)
        return row is not None and row.state == "running"

    await until(runs, f"the call of a {kind} hand does not run")
    os.kill(place.supervisor(hand), signal.SIGKILL)
    result = await call.result()
    if result.outcome != hand_pb2.OUTCOME_LOST:
        raise RuntimeError(f"a {kind} hand that was killed: {result}")
    try:
        await place.release(hand)
    except CarpalError as error:
        raise RuntimeError(f"a {kind} hand that was killed is not released: {error}") from error


async def left(states: Sequence[Path], docker: Engine) -> list[str]:
    """What has no owner below these state folders, or in that engine, once it had time to go."""
    ends = time.monotonic() + _GONE
    while True:
        found = [each for state in states for each in orphans(state)]
        found += [f"container {each}" for each in docker.containers()]
        if not found or time.monotonic() > ends:
            return found
        await asyncio.sleep(_LOOK)
