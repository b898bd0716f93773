"""MCP calls through a vault, beside the same calls made directly to the same server.

Vault and servers are processes of their own. What a call costs more is measured with one caller and
a real MCP server, in turns with a direct call by the same client; how many there are in a second,
with a lean server and lean callers, and the vault held to one processor, as that is the figure's.
"""

import asyncio
import contextlib
import json
import os
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from bench.in_turns import timed
from carpal.tls import IdentityFiles
from tests.tls_ca import Authority
from tests.vault.mcp.world import CANARY, HOST
from vault.mcp.headers import of_message
from vault.mcp.wire import MODERN, VERSION

TURNS, CALLERS, SECONDS = 300, 16, 4.0
_START = 60.0
"""Seconds for a process to say that it serves."""


@dataclass(frozen=True)
class Child:
    """A process that serves."""

    pid: int
    said: dict[str, Any]

    def cpu_seconds(self) -> float:
        """The processor's time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def most_mb(self) -> float:
        """The most memory it ever had at a time."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (most,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(most) / 1024

    def held_to(self, processors: set[int]) -> None:
        """Let all its threads run on those alone."""
        for each in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(each.name), processors)


@contextmanager
def child(module: str, *arguments: object) -> Iterator[Child]:
    """One that serves until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} did not start")
        yield Child(process.pid, json.loads(line))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_START)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_START)


class Caller:
    """Asks a vault as a brain does, and a server as the vault does."""

    def __init__(self, vault: Child, authority: Authority) -> None:
        self._said = vault.said
        files = IdentityFiles(Path(vault.said["brain"]))
        self.to_vault = ssl.create_default_context(cadata=files.ca.read_text())
        self.to_vault.load_cert_chain(files.certificate, files.key)
        self.to_server = ssl.create_default_context(cafile=str(authority.bundle))
        for each in (self.to_vault, self.to_server):
            each.check_hostname = False  # they dial an address
        self._calls = 0

    def asked(self, port: int, tool: str, *, directly: bool) -> tuple[str, dict[str, str], bytes]:
        """The address, headers and body of a call that was not made before."""
        self._calls += 1
        params: dict[str, Any] = {"name": tool, "arguments": {"a": 2, "b": 3}}
        meta = {VERSION: MODERN, "carpal/callId": f"call-{self._calls}"}
        if directly:
            meta["io.modelcontextprotocol/clientCapabilities"] = {}  # type: ignore[assignment]
            meta["io.modelcontextprotocol/clientInfo"] = {"name": "bench", "version": "1"}  # type: ignore[assignment]
        headers = {
            "authorization": f"Bearer {CANARY if directly else self._said['token']}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **(dict(of_message("tools/call", params, MODERN)) if directly else {}),
        }
        params["_meta"] = meta
        body = {"jsonrpc": "2.0", "id": self._calls, "method": "tools/call", "params": params}
        at = f"127.0.0.1:{port}/mcp" if directly else f"{self._said['address']}/mcp/s{port}"
        return f"https://{at}", headers, json.dumps(body).encode()


async def measured(folder: Path) -> dict[str, float]:
    """The figures."""
    authority = Authority(folder)
    authority.issue(HOST)
    with (
        child("bench.vault_server", "real", folder) as real,
        child("bench.vault_server", "lean", folder) as lean,
        child("bench.vault_process", folder, real.said["port"], lean.said["port"]) as vault,
    ):
        caller = Caller(vault, authority)
        figures = await _added(caller, vault, int(real.said["port"]))
        figures |= await _rate(caller, vault, int(lean.said["port"]))
        figures |= await _growth(caller, vault, int(lean.said["port"]))
    return figures


async def _added(caller: Caller, vault: Child, port: int) -> dict[str, float]:
    async with (
        httpx2.AsyncClient(verify=caller.to_vault, trust_env=False, timeout=30) as to_vault,
        httpx2.AsyncClient(verify=caller.to_server, trust_env=False, timeout=30) as to_server,
    ):

        async def once(client: httpx2.AsyncClient, directly: bool) -> None:
            url, headers, body = caller.asked(port, "add", directly=directly)
            headers["host"] = HOST if directly else "vault"
            reply = await client.post(url, headers=headers, content=body)
            if '"5"' not in reply.text:
                raise RuntimeError(f"{reply.status_code} {reply.text[:300]}")

        ours, theirs, added = [], [], []
        used = 0.0
        for turn in range(TURNS + 10):
            if turn == 10:
                used = vault.cpu_seconds()
            through = await timed(lambda: once(to_vault, False))
            directly = await timed(lambda: once(to_server, True))
            if turn >= 10:  # the first ones dial, and ask for the tools
                ours.append(through)
                theirs.append(directly)
                added.append(through - directly)
        used = vault.cpu_seconds() - used
    return {
        "mcp_added_p50_ms": round(statistics.median(ours) - statistics.median(theirs), 2),
        "mcp_added_p50_of_pairs_ms": round(statistics.median(added), 2),
        "mcp_direct_p50_ms": round(statistics.median(theirs), 2),
        "mcp_through_p50_ms": round(statistics.median(ours), 2),
        "mcp_cpu_ms_per_call": round(1000 * used / TURNS, 2),
    }


@asynccontextmanager
async def _connected(
    context: ssl.SSLContext, address: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context, server_hostname=HOST
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _rate(caller: Caller, vault: Child, port: int) -> dict[str, float]:
    async def go_on(directly: bool, until: float) -> int:
        done = 0
        at = f"127.0.0.1:{port}" if directly else str(caller._said["address"])
        context = caller.to_server if directly else caller.to_vault
        async with _connected(context, at) as (reader, writer):
            while time.perf_counter() < until:
                url, headers, body = caller.asked(port, "add", directly=directly)
                path = "/" + url.split("/", 3)[3]
                lines = [f"POST {path} HTTP/1.1", "Host: vault", f"Content-Length: {len(body)}"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(head[head.index(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
                reply = await reader.readexactly(size)
                if b'"5"' not in reply:
                    raise RuntimeError(reply.decode())
                done += 1
        return done

    async def all_of(directly: bool, seconds: float) -> float:
        began = time.perf_counter()
        calls = await asyncio.gather(*(go_on(directly, began + seconds) for _ in range(CALLERS)))
        return sum(calls) / (time.perf_counter() - began)

    every = os.sched_getaffinity(0)
    vault.held_to({min(every)})
    try:
        await all_of(False, 1.0)
        used = vault.cpu_seconds()
        began = time.perf_counter()
        rate = await all_of(False, SECONDS)
        used, took = vault.cpu_seconds() - used, time.perf_counter() - began
        directly = await all_of(True, 1.0)
    finally:
        vault.held_to(every)
    return {
        "mcp_calls_per_s": round(rate, 1),
        "mcp_calls_per_cpu_s": round(rate * took / used, 1),
        "mcp_vault_share_of_its_core": round(used / took, 2),
        "mcp_direct_calls_per_s": round(directly, 1),
    }


async def _growth(caller: Caller, vault: Child, port: int) -> dict[str, float]:
    before = vault.most_mb()
    async with httpx2.AsyncClient(verify=caller.to_vault, trust_env=False, timeout=60) as client:
        for _ in range(3):
            url, headers, body = caller.asked(port, "huge", directly=False)
            reply = await client.post(url, headers=headers, content=body)
            if "RESULT_TOO_LARGE" not in reply.text:
                raise RuntimeError(reply.text[:300])
    return {"reply_200mb_growth_mb": round(vault.most_mb() - before, 1)}
