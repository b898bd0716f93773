"""Hands beside what one would use without us: a local bash, `docker run`, `docker exec`.

Each hand is asked through the daemon's own service, journal on; the engine is a private one, asked
by its API. What is compared takes turns, since machines wander; a ratio is that of the medians.
The last line is one JSON object.
"""

import argparse
import asyncio
import itertools
import json
import logging
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import hands_killed, hands_mcp
from bench.daemons import name, resident_kb
from bench.hands_browser import browsers
from bench.hands_emulator import ticks_per_s
from bench.in_turns import in_turns, timed
from hands.builtin.browser import BrowserType
from hands.builtin.container import ContainerType
from hands.builtin.mcp import McpType
from hands.builtin.plugin import PluginType
from hands.builtin.process import ProcessType
from hands.contract import HandType
from hands.folder_blobs import FolderBlobs
from tests.engine import engine
from tests.hands.place import Place, open_place
from tests.images import SHELL, add_shell

_HARDENED: dict[str, Any] = {
    "network_mode": "none",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "pids_limit": 128,
    "mem_limit": "512m",
    "user": "10001:10001",
    "init": True,
    "tmpfs": {"/tmp": "size=64m"},
}
"""What a careful person gives `docker run`."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    hands: int
    calls: int
    many: int
    each: int
    endless: float


WHOLE = Size(hands=30, calls=200, many=50, each=20, endless=10)
QUICK = Size(hands=2, calls=5, many=5, each=3, endless=1)
"""Says whether all is in order; its figures are no claim."""


async def measure(folder: Path, size: Size) -> dict[str, float]:
    """All of the claim's figures."""
    figures: dict[str, float] = {}
    with engine() as docker:
        await asyncio.to_thread(add_shell, docker.client)
        more: dict[str, HandType] = {
            "container": ContainerType(docker.url),
            "emulator": PluginType("emulator", "hands.emulator.hand:Emulator"),
            "browser": BrowserType(),
            "mcp": McpType(),
        }
        process = ProcessType(sandbox="required")
        most = size.many + 8
        blobs = FolderBlobs(folder / "blobs")
        async with open_place(
            folder, hands_max=most, process=process, more=more, blobs=blobs
        ) as place:
            figures |= await _processes(place, size)
            figures |= await _containers(place, docker.client, size)
            figures["emulator_ticks_per_s"] = await ticks_per_s(place, folder, size.hands // 2)
            figures |= await browsers(place, size.hands // 2)
            figures["endless_output_mb"] = await _endless(place, size)
            figures["fifty_hands_p99_over_p50"] = await _many(place, size)
            linked = folder.parent / "mcp"
            figures["mcp_call_vs_direct"] = await _mcp(linked, size)
            await hands_killed.killed(place, folder)
            left = await hands_killed.left([folder, linked / name(0)], docker)
    _say("\n".join(left) or "nothing is left")
    figures["leftovers"] = len(left)
    return figures


async def _processes(place: Place, size: Size) -> dict[str, float]:
    ready = []
    for _ in range(size.hands):
        began = time.perf_counter()
        hand = await place.hand()
        ready.append(1000 * (time.perf_counter() - began))
        await place.release(hand)
    hand = await place.hand()
    ours, local = await in_turns(
        size.calls, lambda: place.sh(hand, "true"), lambda: program("bash", "-c", "true")
    )
    await place.release(hand)
    _say(f"a call in a process hand {ours:.1f} ms, a local bash {local:.1f} ms")
    return {
        "process_ready_ms": statistics.median(ready),
        "process_call_vs_local_bash": ours / local,
    }


async def _containers(place: Place, client: Any, size: Size) -> dict[str, float]:
    async def ours() -> None:
        made.append(await place.hand(type="container", image=SHELL))

    def docker_run() -> None:
        client.containers.run(SHELL, ["bash", "-c", "true"], remove=True, **_HARDENED)

    made: list[str] = []
    ready, run = await in_turns(size.hands // 2, ours, lambda: asyncio.to_thread(docker_run))
    hand = made.pop()
    for other in made:
        await place.release(other)
    beside = client.containers.run(SHELL, ["sleep", "600"], detach=True, **_HARDENED)

    def docker_exec() -> None:
        code, _ = beside.exec_run(["bash", "-c", "true"])
        if code:
            raise RuntimeError(f"docker exec ended with {code}")

    call, execute = await in_turns(
        size.calls // 4,
        lambda: place.sh(hand, "true"),
        lambda: asyncio.to_thread(docker_exec),
    )
    await asyncio.to_thread(beside.remove, force=True)
    await place.release(hand)
    _say(f"a container hand is ready in {ready:.0f} ms, docker run takes {run:.0f} ms")
    _say(f"a call in it {call:.1f} ms, docker exec {execute:.1f} ms")
    return {
        "container_ready_vs_docker_run": ready / run,
        "container_call_vs_docker_exec": call / execute,
    }


async def _mcp(folder: Path, size: Size) -> float:
    await asyncio.to_thread(folder.mkdir)
    ours, direct, whole = await hands_mcp.measure(folder, size.calls)
    _say(f"a call of an MCP hand, by brain and link, {ours:.1f} ms, of its server {direct:.1f} ms")
    _say(f"the same with its result in a log and acknowledged {whole:.1f} ms")
    return ours / direct


async def _endless(place: Place, size: Size) -> float:
    """MB by which the daemon grew at most while a command wrote without end."""
    hand = await place.hand()
    await place.sh(hand, "true")
    before = most = resident_kb()
    running = asyncio.create_task(place.sh(hand, f"timeout {size.endless} yes"))
    while not running.done():
        await asyncio.wait({running}, timeout=0.02)
        most = max(most, resident_kb())
    result = running.result()
    if not result.omitted_bytes:
        raise RuntimeError(f"it was to be without end: {result.content[-200:]}")
    await place.release(hand)
    return (most - before) / 1024


async def _many(place: Place, size: Size) -> float:
    """How much longer the slowest calls take than the others, of hands that all work at once."""
    hands = [await place.hand() for _ in range(size.many)]

    async def work(hand: str) -> list[float]:
        return [await timed(lambda: place.sh(hand, "true")) for _ in range(size.each)]

    taken = sorted(itertools.chain(*await asyncio.gather(*map(work, hands))))
    for hand in hands:
        await place.release(hand)
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    _say(f"{size.many} hands at once: p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    return p99 / p50


async def program(*command: str) -> None:
    """Run a program of this machine as anybody would. Raises RuntimeError when it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")


def _say(what: str) -> None:
    print(what, flush=True)


def main() -> None:
    """Measure, print, and end with JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything: no claim")
    options = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="carpal-bench-") as folder:
        figures = asyncio.run(measure(Path(folder) / "state", QUICK if options.quick else WHOLE))
    print(json.dumps({figure: round(value, 3) for figure, value in figures.items()}))


if __name__ == "__main__":
    main()
