"""Children are awaited by their ready pipe and ended by pid, and no other process is hit."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal import children
from carpal.errors import Broken
from tests.command import Command
from tests.pace import SCALE

SECONDS = 20.0 * SCALE


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return Command(tmp_path).environ


@asynccontextmanager
async def stranger(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that says a line once it runs."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


SLEEPER = ("sh", "-c", "echo up; exec sleep 60")


async def test_a_child_is_ready_with_its_facts_and_ends_on_term(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    child = await children.start(
        "practice",
        ["practice", "serve", "--listen", "127.0.0.1:0"],
        log=tmp_path / "log",
        environ=environ,
    )
    async with asyncio.timeout(SECONDS):
        facts = await child.ready()
        assert facts["address"].startswith("127.0.0.1:")
        assert child.is_alive()
        assert os.getsid(child.pid) == child.pid
        await children.end([child])
    assert not child.is_alive()
    assert await child.ended() == "ended with exit code 0"


async def test_a_held_child_serves_once_it_is_released(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    child = await children.start(
        "practice",
        ["practice", "serve", "--listen", "127.0.0.1:0"],
        log=tmp_path / "log",
        environ=environ,
        held=True,
    )
    ready = asyncio.create_task(child.ready())
    async with asyncio.timeout(SECONDS):
        assert not (await asyncio.wait({ready}, timeout=2.0))[0]
        child.release()
        child.release()
        assert (await ready)["address"].startswith("127.0.0.1:")
        await children.end([child])
    assert await child.ended() == "ended with exit code 0"


async def test_a_held_child_can_be_ended(tmp_path: Path, environ: dict[str, str]) -> None:
    child = await children.start(
        "practice", ["practice", "serve"], log=tmp_path / "log", environ=environ, held=True
    )
    async with asyncio.timeout(SECONDS):
        await children.end([child])
    assert not child.is_alive()


async def test_a_child_that_fails_to_start_says_why_in_one_line(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    child = await children.start(
        "practice",
        ["practice", "serve", "--listen", "nowhere"],
        log=tmp_path / "log",
        environ=environ,
    )
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Broken) as caught:
            await child.ready()
    assert "practice ended with exit code 2 before it served: " in str(caught.value)
    assert str(caught.value).endswith(f"read {tmp_path / 'log'}")
    assert "\n" not in str(caught.value)


async def test_a_command_that_fails_says_why(environ: dict[str, str], tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Broken, match=r"`carpal vault issue` failed: .*vault init"):
            await children.run(
                ["vault", "issue", "brain", "b", "--state-dir", str(tmp_path)], environ=environ
            )


async def test_another_process_is_ended_when_it_is_the_one_meant() -> None:
    async with stranger(*SLEEPER) as process, asyncio.timeout(SECONDS):
        began = children.start_time(process.pid)
        assert began is not None
        assert await children.end_stranger(
            process.pid, lambda pid: children.start_time(pid) == began
        )
        assert await process.wait() == -15


async def test_a_process_with_a_pid_that_was_used_again_is_left_alone() -> None:
    async with stranger(*SLEEPER) as process, asyncio.timeout(SECONDS):
        assert not await children.end_stranger(process.pid, lambda pid: False)
        assert process.returncode is None


async def test_a_process_that_ignores_term_is_killed() -> None:
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('up', flush=True); signal.pause()"
    )
    async with stranger(sys.executable, "-S", "-c", code) as process, asyncio.timeout(SECONDS):
        assert await children.end_stranger(process.pid, lambda pid: True, grace=0.2)
        assert await process.wait() == -9


async def test_a_process_that_is_gone_is_no_error() -> None:
    async with stranger("echo", "up") as process, asyncio.timeout(SECONDS):
        await process.wait()
        assert not await children.end_stranger(
            process.pid, lambda pid: children.arguments_of(pid) == ["echo", "up"]
        )
        assert children.start_time(process.pid) is None
        assert children.arguments_of(process.pid) == []


async def test_a_start_time_is_read_past_a_name_with_brackets_and_spaces(tmp_path: Path) -> None:
    odd = tmp_path / "a) 1 (b"
    odd.symlink_to(sys.executable)
    code = "import signal; print('up', flush=True); signal.pause()"
    async with stranger(str(odd), "-S", "-c", code) as process:
        began = children.start_time(process.pid)
    mine = children.start_time(os.getpid())
    assert began is not None
    assert mine is not None
    assert began >= mine


def test_endings_are_words() -> None:
    assert children.ending(3) == "ended with exit code 3"
    assert children.ending(-9) == "was killed by SIGKILL"
