"""A hand server in another language, started for a test, and held to the contract by the page."""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.command import Command
from tests.pace import SCALE


@asynccontextmanager
async def started(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """It, once it says that it serves; killed afterwards."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20 * SCALE):
            assert (await process.stdout.readline()).startswith(b"serving on ")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(*command: str, cwd: Path) -> None:
    """A command to its end, which must be good."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(200 * SCALE):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def passes(page: Path, socket: Path, tmp_path: Path) -> None:
    """The `call` and the `check` of a socket that a page says do what they should."""
    command = Command(tmp_path)
    every = page.read_text().splitlines()
    for line in [each for each in every if each.startswith("carpal hand ") and "unix:" in each]:
        _, *arguments = shlex.split(line)
        arguments = [f"unix://{socket}" if "unix:" in each else each for each in arguments]
        async with command.start(*arguments, "--json") as process, asyncio.timeout(60 * SCALE):
            stdout, stderr = await process.communicate()
        assert process.returncode == 0, (stdout[-300:], stderr)
    *verdicts, summary = [json.loads(line) for line in stdout.splitlines()]
    assert [one for one in verdicts if one["verdict"] == "fail"] == []
    assert summary["pass"] >= 6
