"""A real sessiond in a process of its own, as an operator starts it, and what it uses."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carpal.client import dial
from carpal.identity import Role
from carpal.tls import IdentityFiles
from carpal.v1.session_pb2_grpc import SessionStub

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub  # known to the stubs alone

_CARPAL = [sys.executable, "-m", "carpal"]
_SECONDS = 60.0
"""To start, or to stop."""


@dataclass(frozen=True)
class Sessiond:
    """One that serves."""

    address: str
    pid: int
    state: Path

    @asynccontextmanager
    async def brain(self) -> AsyncIterator["SessionAsyncStub"]:
        """Its RPCs over a channel of a brain's, with mutual TLS."""
        async with dial(self.address, Role.SESSIOND, self.identity("brain")) as channel:
            yield SessionStub(channel)

    def identity(self, role: str) -> IdentityFiles:
        """Of that process, as `carpal vault init` issued it."""
        return IdentityFiles(next((self.state / role).glob("**/identity")))

    def cpu_seconds(self) -> float:
        """The processor's time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_kb(self) -> float:
        """The memory it holds, in KiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def stored_bytes(state: Path) -> int:
    """What its files hold, once it has stopped."""
    return sum(path.stat().st_size for path in (state / "sessiond").iterdir() if path.is_file())


@contextmanager
def sessiond(state: Path) -> Iterator[Sessiond]:
    """Start one on that state, made if it is not there; stopped at the end of the block."""
    where = ["--state-dir", str(state)]
    if not state.exists():
        init = [*_CARPAL, "vault", "init", *where]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL, timeout=_SECONDS)
    read, write = os.pipe()
    command = [*_CARPAL, "sessiond", "run", *where, "--listen", "127.0.0.1:0"]
    with (state / "sessiond.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--ready-fd", str(write)], pass_fds=[write], stdout=log, stderr=log
        )
    os.close(write)
    try:
        with os.fdopen(read) as ready:
            line = ready.readline()
        if not line:
            raise RuntimeError(f"sessiond did not start: {(state / 'sessiond.log').read_text()}")
        yield Sessiond(str(json.loads(line)["address"]), process.pid, state)
    finally:
        process.terminate()
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_SECONDS)
