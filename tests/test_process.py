"""A process ends when its work does, whatever is under way and whatever is stuck."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.process import END_LIMIT
from tests.pace import SCALE, times

WAIT = 20.0 * SCALE


@asynccontextmanager
async def child(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that works until it is told to stop; it is ended whatever happens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.process_child", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT):
            assert await process.stdout.readline() == b"at work\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_process_told_to_stop_under_load_ends_l39(loop: str, tmp_path: Path) -> None:
    for _ in range(times(2, 200)):
        async with child("load", loop, str(tmp_path)) as process:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(WAIT):
                assert await process.wait() == 0


@pytest.mark.slow
async def test_a_process_whose_thread_is_stuck_ends_all_the_same_l39() -> None:
    async with child("stuck") as process:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(END_LIMIT + WAIT):
            assert await process.wait() == 1
