"""A call of an MCP server as a hand, beside the same server called directly with the same client.

The hand is of a daemon in a process of its own, over a link to the brain's end in this one, journal
on; its server is in the sandbox, with the client. The direct one has its client here. Both are the
server of times that others wrote. They take turns.

Each ends when who asked has the answer: so nothing is appended to a log on either side. A brain
does that with every result, of whichever hand, before the model sees it, and then acknowledges it;
what a call takes with both is told beside it.
"""

import json
from pathlib import Path

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from bench.daemons import daemons, identity, name
from bench.in_turns import in_turns
from bench.link_brain import identities, link_brain
from carpal.identity import Role
from carpal.v1 import hand_pb2
from tests import mcp_servers

_GIVEN = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
_TOOL = "convert_time"
_LINKED = 60.0
"""Seconds for the daemon to be linked."""


async def measure(folder: Path, calls: int) -> tuple[float, float, float]:
    """Milliseconds at the median: through brain, link and hand, directly, and as the first with the
    result appended to a log and acknowledged."""
    program, *arguments = mcp_servers.command("time")
    pki, files = identities(folder)
    pki.issue(Role.DAEMON, name(0), directory=identity(folder, 0))
    config = json.dumps({"command": [program, *arguments]}).encode()
    given = json.dumps(_GIVEN).encode()
    server = stdio_client(StdioServerParameters(command=program, args=arguments))
    async with (
        link_brain(folder, files) as brain,
        daemons(folder, 0, 1, brain.address, "--mcp") as started,
        Client(server) as client,
    ):
        await started.dial()
        if await brain.linked(1, _LINKED) != 1:
            raise RuntimeError("the daemon is not linked")
        await brain.provision(name(0), "mcp", config)

        async def hand() -> hand_pb2.Result:
            return await brain.call(name(0), _TOOL, given)

        async def direct() -> None:
            if (await client.call_tool(_TOOL, _GIVEN)).is_error:
                raise RuntimeError("the server failed")

        async def logged() -> hand_pb2.Result:
            result = await hand()
            await brain.append(result)
            await brain.acknowledge(name(0))
            return result

        # Two at a time: what a third warms for one of them it would not warm for the other.
        ours, theirs = await in_turns(calls, hand, direct)
        await brain.acknowledge(name(0))
        await brain.begin_log()
        whole, _ = await in_turns(calls, logged, direct)
        await brain.release(name(0))
    return ours, theirs, whole
