"""A call through the link and back, beside unary gRPC, HTTP and MCP; and what daemons cost.

The link is a daemon's own, journal on, over mutual TLS; the brain's end is in the process that
measures, and the daemons share a few others. A peer's server has a process of its own. What is
compared takes turns, since machines wander; a ratio is the median of the rounds'. The last line
is one JSON object.
"""

import argparse
import asyncio
import itertools
import json
import logging
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.daemons import Daemons, daemons, identity, name, resident_kb
from bench.echo_peers import peer
from bench.link_brain import LinkBrain, identities, link_brain
from carpal import coalesce
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.process import collect_seldom
from tests.pki import Pki

_ELSEWHERE = 10
"""The priority of processes that would be on other machines."""
_LINKED = 120.0
"""Seconds for daemons to be linked."""
_CALLERS = 64


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    calls: int
    many: int
    storm: int
    output: int


WHOLE = Size(rounds=5, calls=400, many=1_000, storm=5_000, output=1_000_000_000)
QUICK = Size(rounds=1, calls=50, many=150, storm=300, output=40_000_000)
"""Says whether all is in order; its figures are no claim."""
FEW = 100


async def measure(folder: Path, size: Size) -> dict[str, float]:
    """All of the claim's figures."""
    pki, files = identities(folder)
    figures: dict[str, float] = {}
    async with link_brain(folder, files) as brain, AsyncExitStack() as stack:
        issue(pki, folder, 0, size.storm + size.many + 1)
        few = await start(stack, folder, brain, 0, FEW)
        for number in range(FEW):
            await brain.provision(name(number))
        figures |= await _beside_peers(folder, pki, brain, size)
        figures["coalesced_64_vs_uncoalesced"] = await _coalesced(stack, folder, brain, size)
        figures["gb_output_mb"] = await _output(brain, few, size)
        before = resident_kb()
        await start(stack, folder, brain, FEW, size.many - FEW)
        await asyncio.sleep(1)  # what only linking needed is let go of
        figures["kb_per_idle_daemon"] = (resident_kb() - before) / (size.many - FEW)
        for number in range(FEW, size.many):
            await brain.provision(name(number))
        figures["p50_1000_vs_100_daemons"] = await _many(brain, size)
        print({figure: round(value, 3) for figure, value in figures.items()}, flush=True)
        figures |= await _storm(stack, folder, brain, size)
    return figures


def issue(pki: Pki, folder: Path, first: int, count: int) -> None:
    """Identities of so many daemons."""
    for number in range(first, first + count):
        pki.issue(Role.DAEMON, name(number), directory=identity(folder, number))


async def start(
    stack: AsyncExitStack, folder: Path, brain: LinkBrain, first: int, count: int, *more: str
) -> Daemons:
    """A process of so many daemons, all linked."""
    started = await stack.enter_async_context(daemons(folder, first, count, brain.address, *more))
    await started.dial()
    linked = await brain.linked(count, _LINKED, first)
    if linked != count:
        raise RuntimeError(f"only {linked} of {count} daemons are linked")
    return started


async def _beside_peers(folder: Path, pki: Pki, brain: LinkBrain, size: Size) -> dict[str, float]:
    client = pki.issue(Role.BRAIN, "client", directory=folder / "client")
    served = pki.issue(Role.BRAIN, "echo", directory=folder / "echo")
    calls = {"link": _in_turn(brain, FEW)}
    async with AsyncExitStack() as stack:
        for kind in ("unary", "http", "mcp"):
            serving = peer(kind, served.certificate.parent, client)
            calls[kind] = await stack.enter_async_context(serving)
        rounds = [
            {kind: await p50(call, size.calls) for kind, call in calls.items()}
            for _ in range(size.rounds)
        ]
    for kind in calls:
        print(f"{kind:>8}: {1000 * statistics.median(one[kind] for one in rounds):.3f} ms p50")
    return {
        figure: statistics.median(one["link"] / one[kind] for one in rounds)
        for figure, kind in (
            ("execute_1_vs_unary", "unary"),
            ("execute_1_vs_mcp_http", "mcp"),
            ("execute_1_vs_http", "http"),
        )
    }


async def p50(call: Callable[[], Awaitable[object]], calls: int) -> float:
    """Seconds, one caller, after a few to warm up."""
    taken = []
    for number in range(calls + calls // 10):
        began = time.perf_counter()
        await call()
        if number >= calls // 10:
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


async def _coalesced(stack: AsyncExitStack, folder: Path, brain: LinkBrain, size: Size) -> float:
    """Questions a second of many callers on one link, over those with a frame for each message."""
    other = size.many + size.storm
    whole, coalesce.FRAME_BYTES = coalesce.FRAME_BYTES, 1
    try:
        await start(stack, folder, brain, other, 1, "--uncoalesced")
    finally:
        coalesce.FRAME_BYTES = whole
    await brain.provision(name(other))
    ratios = []
    for _ in range(size.rounds):
        together = await _rate(brain, name(0), size.calls * 4)
        apart = await _rate(brain, name(other), size.calls * 2)
        print(f"one link, {_CALLERS} callers: {together:,.0f} /s, uncoalesced {apart:,.0f} /s")
        ratios.append(together / apart)
    return statistics.median(ratios)


async def _rate(brain: LinkBrain, daemon: str, calls: int) -> float:
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            await brain.ask(daemon)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(_CALLERS):
            group.create_task(caller())
    return calls / (time.perf_counter() - began)


async def _output(brain: LinkBrain, where: Daemons, size: Size) -> float:
    """MB that a gigabyte of output adds to the memory of the daemon's or the brain's process."""
    await brain.provision(name(1), "process")
    await brain.flood(name(1), 1_000_000)
    before = (resident_kb(), await where.memory_kb())
    most = [0.0, 0.0]
    flooding = asyncio.create_task(brain.flood(name(1), size.output))
    while not flooding.done():
        await asyncio.wait({flooding}, timeout=0.2)
        now = (resident_kb(), await where.memory_kb())
        grown = [(n - b) / 1024 for n, b in zip(now, before, strict=True)]
        most = [max(pair) for pair in zip(most, grown, strict=True)]
    came, dropped = flooding.result()
    print(
        f"{(came + dropped) / 1e6:,.0f} MB of output, of which {dropped / 1e6:,.0f} were left out: "
        f"brain +{most[0]:.0f} MB, daemon +{most[1]:.0f} MB"
    )
    if came + dropped != size.output:
        raise RuntimeError("not all of the output came, nor was it said to be left out")
    await brain.provision(name(1))
    return max(most)


async def _many(brain: LinkBrain, size: Size) -> float:
    ratios = []
    for _ in range(size.rounds):
        few = await p50(_in_turn(brain, FEW), size.calls)
        ratios.append(await p50(_in_turn(brain, size.many), size.calls) / few)
    return statistics.median(ratios)


def _in_turn(brain: LinkBrain, count: int) -> Callable[[], Awaitable[object]]:
    """Calls on one daemon after the other."""
    turns = itertools.cycle(range(count))
    return lambda: brain.echo(name(next(turns)))


async def _storm(
    stack: AsyncExitStack, folder: Path, brain: LinkBrain, size: Size
) -> dict[str, float]:
    """So many daemons dial at once, while one that is linked is called.

    Their processes stand for other machines, so they leave the processor to whoever is called.
    """
    each = size.storm // 5
    waiting = [
        await stack.enter_async_context(
            daemons(folder, size.many + part * each, each, brain.address)
        )
        for part in range(5)
    ]
    for those in waiting:
        os.setpriority(os.PRIO_PROCESS, those.process.pid, _ELSEWHERE)
    taken: list[float] = []
    lost: list[float] = []
    over = asyncio.Event()

    async def call() -> None:
        while not over.is_set():
            began = time.perf_counter()
            try:
                await brain.echo(name(0))
            except CarpalError:
                lost.append(time.perf_counter() - began)
            else:
                taken.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)  # calls now and then, not a load

    calling = asyncio.create_task(call())
    began = time.perf_counter()
    await asyncio.gather(*[those.dial() for those in waiting])
    linked = await brain.linked(each * 5, _LINKED, size.many)
    print(f"{linked:,} of {each * 5:,} linked after {time.perf_counter() - began:.1f} s")
    over.set()
    await calling
    if lost:
        raise RuntimeError(f"{len(lost)} calls to a daemon that was linked found it gone")
    taken.sort()
    return {
        f"connected_of_{each * 5}": linked,
        "storm_call_p99_ms": 1000 * taken[len(taken) * 99 // 100],
    }


def main() -> None:
    """Measure, print, and end with JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything: no claim")
    options = parser.parse_args()
    logging.disable()
    collect_seldom()  # as a brain does
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="carpal-bench-") as folder:
        figures = uvloop.run(measure(Path(folder), QUICK if options.quick else WHOLE))
    print(json.dumps({figure: round(value, 3) for figure, value in figures.items()}))


if __name__ == "__main__":
    main()
