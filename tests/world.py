"""A whole Carpal on loopback, for tests: real processes, real certificates, real kills.

Each process is started as an operator starts it, with the `carpal` command,
and says through a pipe when it serves. Only processes started here are ended,
by pid.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carpal.client import dial
from carpal.identity import Role
from carpal.process import interpreter
from carpal.tls import IdentityFiles
from carpal.v1 import orchestrator_pb2_grpc, session_pb2_grpc, vault_pb2_grpc
from tests.faults import kill_tree

START_SECONDS = 30.0
"""How long a process may take to serve; starting Python on a loaded machine is slow."""


@dataclass
class Running:
    """A process and what it said when it served."""

    name: str
    process: asyncio.subprocess.Process
    facts: dict[str, Any]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and wait for the end."""
        if self.process.returncode is None:
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

    async def start(self, name: str, *arguments: str) -> Running:
        """Start `carpal ARGUMENTS` and wait until it serves."""
        read, write = os.pipe()
        log = self.state / f"{name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *interpreter(),
                *arguments,
                "--ready-fd",
                str(write),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[write],
                env={**os.environ, **self.environ},
            )
        os.close(write)
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await asyncio.to_thread(_read_line, read)
        finally:
            os.close(read)
        assert line, f"{name} did not start:\n{log.read_text()[-2000:]}"
        self.running[name] = Running(name, process, json.loads(line), log)
        return self.running[name]

    async def run(self, *arguments: str) -> str:
        """Run a command to its end; its stdout."""
        process = await asyncio.create_subprocess_exec(
            *interpreter(),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(START_SECONDS):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def sessiond(self) -> Running:
        """Start sessiond; again, where it was before."""
        before = self.running["sessiond"].facts if "sessiond" in self.running else {}
        listen = before.get("address", "127.0.0.1:0")
        return await self.start(
            "sessiond", "sessiond", "run", "--state-dir", str(self.state), "--listen", listen
        )

    async def brain(self, name: str) -> Running:
        """Start a brain of this name; again, where it was before."""
        before = self.running[name].facts if name in self.running else {}
        return await self.start(
            name,
            "brain",
            "run",
            "--state-dir",
            str(self.state),
            "--name",
            name,
            "--listen",
            before.get("address", "127.0.0.1:0"),
            "--enroll-listen",
            before.get("enroll", "127.0.0.1:0"),
            "--sessiond",
            self.running["sessiond"].facts["address"],
            "--vault",
            self.running["vault"].facts["address"],
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
        return await self.start(
            "daemon", "hand", "run", "--state-dir", str(self.state), "--token-file", str(token)
        )

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
    term: float = 2.0,
    spare: tuple[str, ...] = (),
) -> AsyncIterator[World]:
    """Everything running: vault, sessiond, practice model, brains, a daemon. Ends it all."""
    it = World(state, term)
    names = [argument for name in brains + spare for argument in ("--brain", name)]
    try:
        await it.run("vault", "init", "--state-dir", str(state), *names)
        listen = ("--state-dir", str(state), "--listen", "127.0.0.1:0")
        _, _, practice = await asyncio.gather(
            it.start("vault", "vault", "run", *listen),
            it.sessiond(),
            it.start("practice", "practice", "serve", "--listen", "127.0.0.1:0"),
        )
        it.environ = {"ANTHROPIC_BASE_URL": practice.facts["url"], "ANTHROPIC_API_KEY": "practice"}
        await asyncio.gather(*(it.brain(name) for name in brains))
        await it.daemon()
        yield it
    finally:
        for running in reversed(list(it.running.values())):
            await running.kill()
        kill_tree(state / "hand" / "hands")


def _read_line(descriptor: int) -> str:
    with os.fdopen(descriptor, encoding="utf-8", closefd=False) as pipe:
        return pipe.readline()
