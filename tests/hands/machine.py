"""One machine for tests: its state folder, and the daemon that runs on it, here or as a process."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from carpal import children
from carpal.children import Child
from carpal.hand_mark import mark
from carpal.identity import Role
from carpal.proof import Token
from hands import app
from hands.builtin.process import ProcessType
from hands.contract import HandType
from hands.enroll import Links, links_path
from hands.files import HandFiles
from hands.inside import tree
from tests.hands.place import PATIENCE, let_go
from tests.pki import Pki


class Machine:
    """One machine's state folder and the daemon that runs on it."""

    def __init__(self, pki: Pki, state: Path) -> None:
        self.pki = pki
        self.state = state
        self.files = HandFiles(state)
        pki.issue(Role.DAEMON, "d", pool="p", directory=self.files.identity_dir)

    def dials(self, *addresses: str) -> None:
        """Where it dials."""
        links = Links(addresses, "127.0.0.1:1")
        links.save(links_path(self.files.identity_dir))

    @asynccontextmanager
    async def daemon(
        self,
        token: Token | None = None,
        hand_type: HandType | None = None,
        policy: Path | None = None,
    ) -> AsyncIterator[asyncio.Event]:
        """The daemon, running; yields its stop event, which the end sets."""
        stop = asyncio.Event()
        config = app.HandConfig(
            state_dir=self.state, hands_max=4, labels={"rack": "7"}, stop_wait=0, policy=policy
        )
        running = asyncio.create_task(
            app.run(
                config,
                stop,
                token=token,
                hand_types={"process": hand_type or ProcessType(sandbox="off")},
            )
        )
        try:
            yield stop
        finally:
            stop.set()
            async with asyncio.timeout(PATIENCE):
                await running

    @asynccontextmanager
    async def process(self, *arguments: str, **environ: str) -> AsyncIterator[Child]:
        """The daemon as a process of its own, which may be stopped and killed."""
        child = await children.start(
            "daemon",
            ["hand", "run", "--state-dir", str(self.state), *arguments],
            log=self.state / "daemon.log",
            environ={**os.environ, **environ},
        )
        try:
            yield child
        finally:
            if child.is_alive():
                child.process.send_signal(signal.SIGCONT)
                child.process.kill()
            async with asyncio.timeout(PATIENCE):
                await child.process.wait()

    def fifo(self) -> None:
        """Make what `let_go` opens, in hand `h`, before the command that waits at it gets there."""
        os.mkfifo(self.files.hands / "h/workspace/go")

    async def let_go(self) -> None:
        """Let the command go on that waits there."""
        await let_go(self.files.hands / "h/workspace/go")

    def kill_hands(self) -> None:
        """End what the tests left."""
        if self.files.hands.exists():
            for folder in self.files.hands.iterdir():
                tree.kill_marked(mark(folder))
