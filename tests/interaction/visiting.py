"""Short ways into a hand, as an operator goes: by the command, on a terminal or in a pipe."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from carpal.process import interpreter
from tests.command import ROOT, Command
from tests.interaction.play import SECONDS
from tests.world import World, world

EVERYBODY = '["shell", "copy", "forward", "control"]'
"""All that a person may do inside, as a policy says it."""


def command(whole: World, scratch: Path) -> Command:
    """`carpal`, as this world's operator."""
    address = whole.running["sessiond"].facts["address"]
    return Command(scratch, {"CARPAL_STATE": str(whole.state), "CARPAL_SESSIOND": address})


@asynccontextmanager
async def welcoming(folder: Path, people: str = EVERYBODY) -> AsyncIterator[World]:
    """A world of two brains, whose one machine's owner allows `people`."""
    policy = folder / "policy.toml"
    policy.write_text(f"people = {people}\n")
    environ = {"CARPAL_POLICY": str(policy)}
    async with world(folder / "state", brains=("b1", "b2"), environ=environ) as running:
        yield running


class Typed:
    """A person at a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self.master = master
        self.seen = b""
        self._grew = asyncio.Event()
        os.set_blocking(master, False)
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.master)
        self.seen += data
        self._grew.set()

    def type(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    async def prompted(self) -> None:
        """Until the shell waits for a command."""
        await self.sees(rb"[#$] ", exactly=False)

    async def sees(self, text: bytes, *, exactly: bool = True) -> None:
        """Until it is on the screen; what came up to there is forgotten."""
        pattern = re.escape(text) if exactly else text
        try:
            async with asyncio.timeout(SECONDS):
                while not (found := re.search(pattern, self.seen)):
                    self._grew.clear()
                    await self._grew.wait()
        except TimeoutError:
            raise AssertionError(f"not seen: {text!r} in {self.seen!r}") from None
        self.seen = self.seen[found.end() :]

    async def ends(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()

    @property
    def attributes(self) -> list[object]:
        """Of the terminal."""
        return termios.tcgetattr(self.master)

    def resize(self, rows: int, columns: int) -> None:
        """Make it another size."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@asynccontextmanager
async def typed(carpal: Command, *arguments: str) -> AsyncIterator[Typed]:
    """A command with a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *interpreter(),
        *arguments,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**carpal.environ, "TERM": "xterm"},
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    person = Typed(process, master)
    try:
        yield person
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(slave)
        os.close(master)
