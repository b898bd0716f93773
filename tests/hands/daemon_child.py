"""A daemon's hand service in a process of its own, to be killed: requests in, replies out.

`python -m tests.hands.daemon_child STATE`; each message is four bytes of
length and a protobuf. With CARPAL_TEST_ENGINE, an engine's address, there are container and MCP
hands too; with CARPAL_TEST_SOCKET, as NAME=PATH, hands of the server there; with
CARPAL_TEST_PLUGIN, as NAME=MODULE:CLASS, those of that class; with CARPAL_TEST_BENCH, a
folder, those of `tests/hands/bench_type.py`.
"""

import asyncio
import os
import struct
import sys
from pathlib import Path

from carpal.v1 import orchestrator_pb2 as pb
from hands.builtin.container import ContainerType
from hands.builtin.mcp import McpType
from hands.builtin.plugin import PluginType
from hands.builtin.socket import SocketType
from hands.contract import HandType
from hands.link import dispatch
from tests.hands.bench_type import BenchType
from tests.hands.place import open_place


async def main(state: Path) -> None:
    """Serve until stdin ends."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def answer(request: pb.Request) -> None:
        async for reply in dispatch.answer(place.service, request):
            data = reply.SerializeToString()
            os.write(1, struct.pack(">I", len(data)) + data)

    engine = os.environ.get("CARPAL_TEST_ENGINE")
    more: dict[str, HandType] = {}
    if engine:
        more = {"container": ContainerType(engine), "mcp": McpType(engine=engine)}
    name, _, path = os.environ.get("CARPAL_TEST_SOCKET", "").partition("=")
    if name:
        more[name] = SocketType(name, Path(path))
    name, _, target = os.environ.get("CARPAL_TEST_PLUGIN", "").partition("=")
    if name:
        more[name] = PluginType(name, target)
    if bench := os.environ.get("CARPAL_TEST_BENCH"):
        more["bench"] = BenchType(Path(bench))
    async with open_place(state, end=False, more=more) as place, asyncio.TaskGroup() as group:
        os.write(1, struct.pack(">I", 0))
        while True:
            try:
                (size,) = struct.unpack(">I", await reader.readexactly(4))
            except asyncio.IncompleteReadError:
                return
            group.create_task(answer(pb.Request.FromString(await reader.readexactly(size))))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
