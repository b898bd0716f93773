"""A service manager's notify socket hears of a real daemon: ready, how it stands, still turning."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.notify import READY, Notify
from carpal.v1 import hand_pb2
from tests.hands.fake_brain import FakeBrain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.pace import SCALE

_ROOT = Path(__file__).parents[2]
_DOG = 1.5 * SCALE
"""Seconds of the watchdog."""


class Manager:
    """What stands in for systemd's notify socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(path))
        self.heard: list[str] = []
        self.environ = {
            "NOTIFY_SOCKET": str(path),
            "WATCHDOG_USEC": str(int(_DOG * 1e6)),
        }

    async def next(self, limit: float = PATIENCE) -> str:
        """One word; TimeoutError when none comes."""
        async with asyncio.timeout(limit):
            data = await asyncio.get_running_loop().sock_recv(self._socket, 4096)
        self.heard.append(data.decode())
        return self.heard[-1]

    async def until(self, word: str) -> str:
        """The next one that has `word` in it."""
        async with asyncio.timeout(PATIENCE):
            while word not in (heard := await self.next()):
                pass
        return heard

    def close(self) -> None:
        """It went away."""
        self._socket.close()


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    it = Manager(tmp_path / "notify")
    yield it
    it.close()


async def test_it_is_ready_before_a_brain_answers_and_says_how_it_stands(
    machine: Machine, one: FakeBrain, manager: Manager
) -> None:
    """One that is ready only with a link would be restarted for ever while a brain is away."""
    one.admits = False
    async with machine.process(**manager.environ) as child:
        assert await manager.next() == READY
        await manager.until("STATUS=daemon d: not linked")
        one.admits = True
        await manager.until(f"linked to brain-1 at {one.address}")
        await manager.until("WATCHDOG=1")
        await manager.until("WATCHDOG=1")
        child.process.send_signal(signal.SIGHUP)
        assert (await manager.until("RELOADING=1")).startswith("RELOADING=1\nMONOTONIC_USEC=")
        await manager.until(READY)
        child.process.terminate()
        await manager.until("STOPPING=1")
        await manager.until("STATUS=stops; waits 10 s at most for 0 calls")
        async with asyncio.timeout(PATIENCE):
            assert await child.process.wait() == 0


@pytest.mark.parametrize("token", [b"carpal1.not-whole\n", b"\xff\xfe"])
async def test_a_token_that_is_no_token_does_not_keep_an_enrolled_daemon_from_starting(
    machine: Machine, one: FakeBrain, tmp_path: Path, token: bytes
) -> None:
    handed = tmp_path / "credentials"
    handed.mkdir()
    (handed / "token").write_bytes(token)
    async with machine.process(CREDENTIALS_DIRECTORY=str(handed)):
        await one.link()
    assert "token not used; this machine is enrolled" in (machine.state / "daemon.log").read_text()


async def test_the_watchdog_is_fed_while_a_call_runs_that_is_waited_for(
    machine: Machine, one: FakeBrain, manager: Manager
) -> None:
    async with machine.process(CARPAL_STOP_WAIT="3600", **manager.environ) as child:
        asked = await one.link()
        await asked.provision("h")
        machine.fifo()
        replies = aiter(asked.execute("h", "c", "echo begun; read x <go"))
        await anext(replies)
        child.process.terminate()
        await manager.until("STOPPING=1")
        for _ in range(4):
            await manager.until("WATCHDOG=1")
        await machine.let_go()
        async with asyncio.timeout(PATIENCE):
            assert await child.process.wait() == 0


@asynccontextmanager
async def _blocking(machine: Machine, environ: dict[str, str]) -> AsyncIterator[int]:
    """A daemon with a hand type that stops the event loop when it is probed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hands.blocking_child", str(machine.state),
        cwd=_ROOT, env={**os.environ, **environ}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.kill()
        await process.wait()


async def test_a_blocked_loop_stops_feeding_the_watchdog(
    machine: Machine, one: FakeBrain, manager: Manager
) -> None:
    async with _blocking(machine, manager.environ):
        asked = await one.link()
        await manager.until("WATCHDOG=1")
        request = hand_pb2.ProbeRequest(type="process")
        probing = asyncio.create_task(asked.ask(probe=request))
        with contextlib.suppress(TimeoutError):
            while await manager.next(limit=_DOG):  # what was said before it stood still
                assert len(manager.heard) < 100, "it is fed for ever"
        probing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probing


def test_what_is_said_is_taken_out_of_the_environment_so_that_no_hand_speaks_for_the_daemon(
    tmp_path: Path,
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "none"), "WATCHDOG_USEC": "2000000", "HOME": "/"}
    notify = Notify(environ)
    assert environ == {"HOME": "/"}
    assert notify.watchdog == 2
    notify.tell(READY)  # nobody is there: logged, and no error


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "5000000"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"},
    ],
)
def test_without_a_manager_or_with_anothers_watchdog_none_is_fed(environ: dict[str, str]) -> None:
    assert Notify(environ).watchdog == 0
