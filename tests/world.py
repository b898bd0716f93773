"""A whole Carpal on loopback, for tests: real processes, real certificates, real kills.

Each process is started as an operator starts it, with the `carpal` command,
and says through a pipe when it serves. Only processes started here are ended,
by pid.
"""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from carpal import children
from carpal.children import Child
from carpal.client import dial
from carpal.identity import DEFAULT_TRUST_DOMAIN, Role
from carpal.process import interpreter
from carpal.tls import IdentityFiles
from carpal.v1 import orchestrator_pb2_grpc, session_pb2_grpc, vault_pb2_grpc
from tests.faults import FaultProxy, fault_proxy, kill_tree
from tests.pace import SCALE, times
from tests.pki import Pki
from vault import setup
from vault.files import VaultFiles
from vault.opened import authority_of

START_SECONDS = times(30, 120) * SCALE
"""How long a process may take to serve; starting Python on a loaded machine is slow. A brain takes
3 s of a core, and in a soak several worlds have two."""


@dataclass
class Running:
    """A process and what it said when it served."""

    child: Child
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def process(self) -> asyncio.subprocess.Process:
        return self.child.process

    @property
    def log(self) -> Path:
        return self.child.log

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and wait for the end."""
        if self.child.is_alive():
            self.process.send_signal(number)
        async with asyncio.timeout(START_SECONDS):
            await self.process.wait()


@dataclass
class World:
    """One trust domain with everything in it."""

    state: Path
    term: float
    environ: dict[str, str] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    ours: list[Running] = field(default_factory=list)
    """All that was ever started."""
    fronts: dict[str, FaultProxy] = field(default_factory=dict)
    """Brains that daemons and other brains reach through a network that can fail."""

    older: dict[str, str] = field(default_factory=dict)
    """The environment of the daemon, where it is another version's."""

    async def start(
        self, name: str, *arguments: str, environ: Mapping[str, str] = MappingProxyType({})
    ) -> Running:
        """Start `carpal ARGUMENTS` and wait until it serves; it is ended whatever happens."""
        child = await children.start(
            name,
            arguments,
            log=self.state / f"{name}-{len(self.ours)}.log",
            environ={**os.environ, **self.environ, **environ},
        )
        running = Running(child)
        self.ours.append(running)
        async with asyncio.timeout(START_SECONDS):
            running.facts = await child.ready()
        self.running[name] = running
        return running

    async def end(self) -> None:
        """Kill all that was started, also what never served, and all hands."""
        try:
            await asyncio.gather(*(running.kill() for running in self.ours))
        finally:
            kill_tree(self.state / "hand" / "hands")

    async def run(self, *arguments: str) -> str:
        """Run a command to its end; its stdout."""
        process = await asyncio.create_subprocess_exec(
            *interpreter(),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def sessiond(self) -> Running:
        """Start sessiond; again, where it was before."""
        before = self.running["sessiond"].facts if "sessiond" in self.running else {}
        listen = before.get("address") or _own_address()
        vault = self.running["vault"].facts["address"]
        where = ("--listen", listen, "--vault", vault)
        return await self.start(
            "sessiond", "sessiond", "run", "--state-dir", str(self.state), *where
        )

    async def brain(self, name: str) -> Running:
        """Start a brain of this name; again, where it was before."""
        before = self.running[name].facts if name in self.running else {}
        listen = ["--listen", before.get("address") or _own_address()]
        if front := self.fronts.get(name):
            listen = ["--listen", front.target, "--advertise", front.address]
        return await self.start(
            name,
            "brain",
            "run",
            "--state-dir",
            str(self.state),
            "--name",
            name,
            *listen,
            "--enroll-listen",
            before.get("enroll") or _own_address(),
            "--sessiond",
            self.running["sessiond"].facts["address"],
            "--vault",
            self.running["vault"].facts["address"],
            "--vault-mcp",
            self.running["vault"].facts["mcp"],
            "--lease-term",
            str(self.term),
        )

    async def daemon(self) -> Running:
        """Start the daemon; it enrols by a token the first time."""
        token = self.state / "token"
        if not (self.state / "hand" / "identity" / "cert.pem").exists():
            text = await self.run(
                "fleet",
                "token",
                "--state-dir",
                str(self.state),
                "--name",
                "daemon-1",
                "--sessiond",
                self.running["sessiond"].facts["address"],
                "--vault",
                self.running["vault"].facts["address"],
            )
            token.write_text(text)
        where = ("--state-dir", str(self.state), "--token-file", str(token))
        return await self.start("daemon", "hand", "run", *where, environ=self.older)

    @asynccontextmanager
    async def sessions(self) -> AsyncIterator["session_pb2_grpc.SessionAsyncStub"]:
        """sessiond, as the operator."""
        async with self._dial("sessiond", Role.SESSIOND) as channel:
            yield session_pb2_grpc.SessionStub(channel)

    @asynccontextmanager
    async def orchestrator(
        self, brain: str
    ) -> AsyncIterator["orchestrator_pb2_grpc.OrchestratorAsyncStub"]:
        """A brain, as the operator."""
        async with self._dial(brain, Role.BRAIN) as channel:
            yield orchestrator_pb2_grpc.OrchestratorStub(channel)

    @asynccontextmanager
    async def vault(self) -> AsyncIterator["vault_pb2_grpc.VaultAsyncStub"]:
        """The vault, as the operator."""
        async with self._dial("vault", Role.VAULT) as channel:
            yield vault_pb2_grpc.VaultStub(channel)

    def _dial(self, name: str, role: Role) -> Any:
        files = IdentityFiles(self.state / "operator" / "identity")
        return dial(self.running[name].facts["address"], role, files)


@asynccontextmanager
async def world(
    state: Path,
    *,
    brains: tuple[str, ...] = ("b1",),
    term: float = 2.0 * SCALE,
    spare: tuple[str, ...] = (),
    scripts: tuple[Path, ...] = (),
    environ: Mapping[str, str] | None = None,
    fronted: bool = False,
    left: timedelta | None = None,
    model: str = "",
    older: Mapping[str, str] | None = None,
) -> AsyncIterator[World]:
    """Everything running: vault, sessiond, practice model, brains, a daemon. Ends it all.

    With `left` the first identities have only that long to live.
    `model` is the URL of a model of the test's own, in place of the practice model.
    `older` is the environment in which the daemon is another version's.
    `fronted` puts each brain behind a fault proxy. `environ` is for all processes.
    """
    settings = {"CARPAL_STOP_WAIT": "0", **(environ or {})}
    it = World(state, term, environ=settings, older=dict(older or {}))
    names = [argument for name in brains + spare for argument in ("--brain", name)]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(it.end)
        for name in brains if fronted else ():
            it.fronts[name] = await stack.enter_async_context(fault_proxy(_own_address()))
        if left is None:
            await it.run("vault", "init", "--state-dir", str(state), *names)
        else:
            _init_ending(state, (*brains, *spare), left)
        listen = ("--state-dir", str(state), "--listen", "127.0.0.1:0")
        played = [argument for path in scripts for argument in ("--script", str(path))]
        practice = ("practice", "serve", "--listen", "127.0.0.1:0", *played)
        async with asyncio.TaskGroup() as group:  # one that fails cancels the others' starts
            if not model:
                group.create_task(it.start("practice", *practice))
            await it.start("vault", "vault", "run", *listen, "--mcp-listen", "127.0.0.1:0")
            await it.sessiond()
        url = model or it.running["practice"].facts["url"]
        it.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "practice"}
        async with asyncio.TaskGroup() as group:
            for name in brains:
                group.create_task(it.brain(name))
        await it.daemon()
        yield it


def _init_ending(state: Path, brains: Iterable[str], left: timedelta) -> None:
    """As `carpal vault init` a while ago, but that nothing of it lasts for long."""
    files, now = VaultFiles(state), datetime.now(UTC)
    setup.init(files, DEFAULT_TRUST_DOMAIN, [], lambda: now - timedelta(days=1))
    pki = Pki(state)
    pki.authority = authority_of(files)
    selves = [(Role.VAULT, "vault"), (Role.SESSIOND, "sessiond"), (Role.OPERATOR, "operator")]
    for role, name in (*selves, *((Role.BRAIN, name) for name in brains)):
        pki.issue(
            role,
            name,
            not_before=now - timedelta(minutes=4),
            not_after=now + left,
            directory=files.identity(role, name).directory,
        )


def _own_address() -> str:
    """A loopback address that nobody else chose: who is started again must be found there.

    A free port would be any connection's while nobody listens on it.
    """
    return f"127.{'.'.join(str(random.randrange(1, 255)) for _ in range(3))}:7441"
