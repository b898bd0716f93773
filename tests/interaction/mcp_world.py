"""A world with somebody's MCP server in it, which the vault alone has the token for."""

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carpal.children import Child
from carpal.v1 import vault_pb2 as pb
from tests.interaction.play import SECONDS, Session, session
from tests.tls_ca import Authority
from tests.vault.mcp.world import CANARY, HOST
from tests.world import START_SECONDS, Running, World, world

SCRIPT = Path(__file__).with_name("notes.yaml")
ALLOWED = {"permissions": {"default": "always_allow"}}


@dataclass
class Notes:
    """The world, and the server."""

    it: World
    folder: Path
    authority: Authority
    port: int
    server: asyncio.subprocess.Process | None = None
    ours: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it is, as the agent says it."""
        return f"https://{HOST}:{self.port}/mcp"

    def effects(self) -> list[str]:
        """What it did."""
        return _lines(self.folder / "effects")

    def seen(self) -> set[str]:
        """What it was told of who asks."""
        return set(_lines(self.folder / "seen"))

    async def began(self, count: int = 1) -> None:
        """Until it did so much."""
        async with asyncio.timeout(SECONDS):
            while len(self.effects()) < count:  # noqa: ASYNC110 - another process's file
                await asyncio.sleep(0.02)

    async def go(self) -> None:
        """Let a call that is held end."""
        async with asyncio.timeout(SECONDS):
            await asyncio.to_thread((self.folder / "go").write_bytes, b"go")

    async def serve(self, token: str = CANARY) -> None:
        """Start the server; again, where it was before."""
        certificate, key = self.authority.issue(HOST)
        arguments = (str(self.folder), str(certificate), str(key), str(self.port), token)
        with (self.folder / f"server-{len(self.ours)}.log").open("wb") as log:
            self.server = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.interaction.notes_server", *arguments,
                stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.ours.append(self.server)
        assert self.server.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            assert await self.server.stdout.readline() == b"ready\n"

    async def kill(self) -> None:
        """Kill the server."""
        assert self.server is not None
        self.server.kill()
        await self.server.wait()

    async def vault(self) -> Running:
        """Start the vault in place of the one there is, or was."""
        before = self.it.running["vault"]
        await before.kill()
        reading, writing = os.pipe()
        pipe = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(pipe), os.fdopen(reading, "rb")
        )
        log = self.it.state / f"vault-{len(self.it.ours)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.vault.widened", str(self.port),
                str(self.authority.bundle), "vault", "run", "--state-dir", str(self.it.state),
                "--listen", before.facts["address"], "--mcp-listen", before.facts["mcp"],
                "--ready-fd", str(writing),
                stdout=output, stderr=output, env={**os.environ, **self.it.environ},
                start_new_session=True, pass_fds=(writing,),
            )  # fmt: skip
        os.close(writing)
        running = Running(Child("vault", process, log, pipe))
        self.it.ours.append(running)
        async with asyncio.timeout(START_SECONDS):
            running.facts = await running.child.ready()
        self.it.running["vault"] = running
        return running

    async def credential(
        self, name: str = "notes", token: str = CANARY, owner: str | None = None
    ) -> None:
        """An operator puts the token into the vault `default`; the owner's, if one is said."""
        told = {"mcp_server_url": self.url} | ({"owner": owner} if owner else {})
        policy = json.dumps(told).encode()
        request = pb.CreateCredentialRequest(
            credential_id=name, kind="static_bearer", policy=policy,
            secrets={"token": token.encode()},
        )  # fmt: skip
        async with self.it.vault() as stub:
            await stub.CreateCredential(request, timeout=SECONDS)

    async def archive(self, name: str) -> None:
        """An operator archives a credential."""
        async with self.it.vault() as stub:
            await stub.ArchiveCredential(
                pb.ArchiveCredentialRequest(credential_id=name), timeout=SECONDS
            )

    @asynccontextmanager
    async def session(
        self,
        task: str,
        agent: Mapping[str, Any] = ALLOWED,
        vaults: tuple[str, ...] = ("default",),
        user: str | None = None,
    ) -> AsyncIterator[Session]:
        """A session whose agent has the server; with `user`, in that user's name."""
        servers = [{"name": "notes", "url": self.url}]
        if user is not None:
            servers[0]["credential"] = "user"
        said = {"mcp_servers": servers, "vault_ids": list(vaults), **agent}
        async with session(self.it, f"[notes] {task}", agent=said, user=user or "") as made:
            yield made


@asynccontextmanager
async def notes(
    folder: Path, *, brains: tuple[str, ...] = ("b1",), **more: Any
) -> AsyncIterator[Notes]:
    """All of it, served."""
    place = folder / "notes"
    place.mkdir()
    os.mkfifo(place / "go")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with world(folder / "state", brains=brains, scripts=(SCRIPT,), **more) as it:
        there = Notes(it, place, Authority(place), port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(there.serve())
                group.create_task(there.vault())
            await there.credential()
            yield there
        finally:
            for process in there.ours:
                if process.returncode is None:
                    process.kill()
                await process.wait()


def memory(pid: int) -> bytes:
    """All that a process has in memory and may write to."""
    found = []
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        for line in maps:
            span, rights, *_ = line.split()
            begin, end = (int(each, 16) for each in span.split("-"))
            if not rights.startswith("rw"):
                continue
            try:
                file.seek(begin)
                found.append(file.read(end - begin))
            except (OSError, OverflowError):
                continue
    return b"\n".join(found)


def grants_in(data: bytes) -> set[str]:
    """Tokens of grants in a process's memory."""
    return {each.decode() for each in re.findall(rb"avs_mcp_[a-z2-7]{16}\.[A-Za-z0-9_-]{43}", data)}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
