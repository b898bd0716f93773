"""Many daemons in one process, each with its identity, journal and link; most of their hands echo.

`python -m bench.daemons FOLDER FIRST COUNT BRAIN` dials with all of them at once when a line comes
on its standard input, answers each further line with its memory in KiB, and ends at its end.
With `--uncoalesced`, each message has a frame of its own; with `--mcp` they have MCP hands too.
"""

import asyncio
import logging
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from bench.echo_hand import EchoType
from carpal import coalesce
from carpal.process import collect_seldom
from carpal.tls import IdentityFiles
from hands.builtin.mcp import McpType
from hands.builtin.process import ProcessType
from hands.contract import HandType
from hands.daemon import Daemon
from hands.inventory import open_inventory
from hands.journal import Journal
from hands.service import HandService

_SECONDS = 120.0


def name(number: int) -> str:
    """Of a daemon."""
    return f"daemon-{number}"


def identity(folder: Path, number: int) -> Path:
    """Where a daemon's identity is."""
    return folder / name(number) / "identity"


@dataclass
class Daemons:
    """A process of them."""

    process: asyncio.subprocess.Process
    ready: bool = False

    async def dial(self) -> None:
        """All at once, now."""
        await self._ask()

    async def memory_kb(self) -> int:
        """What the process holds."""
        return int(await self._ask())

    async def _ask(self) -> bytes:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()
        async with asyncio.timeout(_SECONDS):
            return await self.process.stdout.readline()


@asynccontextmanager
async def daemons(
    folder: Path, first: int, count: int, brain: str, *more: str
) -> AsyncIterator[Daemons]:
    """A process of `count` daemons, which have opened their journals and wait to dial."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.daemons", str(folder), str(first), str(count), brain, *more),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            if not await process.stdout.readline():
                raise RuntimeError("the daemons did not start")
        yield Daemons(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _run(folder: Path, first: int, count: int, brain: str) -> None:
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with AsyncExitStack() as stack:
        those = [
            await _daemon(stack, folder, number, brain) for number in range(first, first + count)
        ]
        print("ready", flush=True)
        if not await commands.readline():
            return
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(daemon.run()) for daemon in those]
            print("dialling", flush=True)
            while await commands.readline():
                print(resident_kb(), flush=True)
            for task in running:
                task.cancel()


async def _daemon(stack: AsyncExitStack, folder: Path, number: int, brain: str) -> Daemon:
    more: dict[str, HandType] = {"mcp": McpType()} if "--mcp" in sys.argv else {}
    files = IdentityFiles(identity(folder, number))
    home = folder / name(number)
    journal = stack.enter_context(closing(Journal(home / "journal.db")))
    inventory = await stack.enter_async_context(
        open_inventory(
            journal=journal,
            types={"echo": EchoType(), "process": ProcessType(), **more},
            folder=home / "hands",
            boot_id="boot",
            hands_max=64,
        )
    )
    return Daemon(
        lambda: files,
        HandService(inventory, name(number), "default"),
        inventory,
        labels={},
        brains=lambda: [brain],
        on_brains=lambda _: None,
        welcomed=lambda _: None,
    )


def resident_kb() -> int:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


if __name__ == "__main__":
    logging.disable()
    collect_seldom()  # no machine has so many daemons that this would take it long
    if sys.argv[5:] == ["--uncoalesced"]:
        coalesce.FRAME_BYTES = 1
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
