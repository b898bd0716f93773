"""A supervisor obeys its daemon alone: code in the hand cannot speak in its place."""

import asyncio
import os
from pathlib import Path

import pytest

from hands.builtin.process import ProcessType
from hands.inside import tree
from hands.isolation import probe
from tests.hands.place import PATIENCE, open_place
from tests.pace import SCALE

_POKE = """
import json, socket, struct, time
while True:
    speaking = socket.socket(socket.AF_UNIX)
    try:
        speaking.connect("SOCKET")
        message = json.dumps({"op": "contact"}).encode()
        speaking.sendall(struct.pack(">I", len(message)) + message)
        print("spoke", flush=True)
    except OSError as error:
        print(error, flush=True)
    time.sleep(0.1)
"""


@pytest.mark.parametrize("sandbox", ["required", "off"])
async def test_code_in_a_hand_neither_displaces_its_daemon_nor_puts_off_its_deadline(
    tmp_path: Path, sandbox: str
) -> None:
    if sandbox == "required" and (why := probe.problem()):
        pytest.skip(why)
    kind = ProcessType(sandbox=sandbox)
    async with open_place(tmp_path / "state", process=kind, end=False) as place:
        hand = await place.hand(deadline=4.0 * SCALE)
        folder = place.inventory.folder_of(hand)
        inside = "/run/carpal/socket" if sandbox == "required" else f"{folder}/socket"
        await place.run(hand, "write", file_path="p.py", content=_POKE.replace("SOCKET", inside))
        command = "setsid python3 p.py >said 2>&1 & until [ -s said ]; do sleep 0.05; done"
        await place.sh(hand, command)
        assert (await place.sh(hand, "echo on")).content == "on\n", "the daemon is heard still"
        supervisor = tree.find(place.supervisor(hand))
        assert supervisor is not None
    ended = os.pidfd_open(supervisor.pid)
    try:
        there = asyncio.Event()
        asyncio.get_running_loop().add_reader(ended, there.set)
        async with asyncio.timeout(PATIENCE):
            await there.wait()
    finally:
        asyncio.get_running_loop().remove_reader(ended)
        os.close(ended)
        await kind.reap(hand, folder)
