"""Durable append of 1 KB events to sessiond, beside PostgreSQL and Redis on the same disk.

Ours are with positions, duplicates found, fences, the hash chain and a live tail, over mutual TLS;
all sync every commit, and no peer's connection is encrypted. Rounds take turns, since the speed
of disks wanders: a ratio is of one round, and what is printed is the median of the rounds. Rates
are this machine's; only the ratios mean anything elsewhere. Beside them stands the limit: the
same stream and commits of nothing but the events. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from bench.append_load import bare, ours
from bench.append_long import append_cost, slice_ms
from bench.append_room import bytes_per_event, tail_kb
from bench.bare_log import bare_log
from bench.figures import Result
from bench.peers import postgres, postgres_server, redis, redis_server
from bench.redis_bare import redis_bare
from bench.sessiond_process import sessiond

IN_FLIGHT = (1, 64, 256)
Round = dict[tuple[str, int], Result]
"""What each gave with so many in flight."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    seconds: float
    long: int
    tails: int
    tail_all: bool = False


WHOLE = Size(rounds=3, seconds=2.0, long=1_000_000, tails=1_000)
QUICK = Size(rounds=1, seconds=0.7, long=100_000, tails=200)
"""Says whether all is in order; its figures are no claim."""
_BOUND = 60.0
"""Seconds a peer's measurement may take, or it hangs; our streams have deadlines of their own."""


async def measure(root: Path, size: Size) -> dict[str, float]:
    """All of the claim's figures; the rates behind them are printed."""
    with sessiond(root / "state") as server:
        limit = bare_log(server.identity("sessiond"), server.identity("brain"), root / "bare")
        async with server.brain() as stub, limit as bare_stub:
            with postgres_server() as conninfo, redis_server() as address:
                seconds = size.seconds
                who: dict[str, Callable[[int], Awaitable[Result]]] = {
                    "postgres": lambda n: _bounded(postgres(conninfo, n, seconds)),
                    "redis": lambda n: _bounded(redis(address, n, seconds)),
                    "redis, bare": lambda n: _bounded(redis_bare(address, n, seconds)),
                    "sessiond": lambda n: ours(stub, n, seconds, size.tail_all),
                    "stream, SQLite": lambda n: bare(bare_stub, n, seconds),
                }
                rounds = [await _round(who) for _ in range(size.rounds)]
            _print(list(who), rounds)
            syncs = await asyncio.to_thread(syncs_per_second, root / "sync", size.seconds)
            print(f"fdatasync of 4 KiB: {syncs:,.0f} /s")
            figures = ratios(rounds)
            figures["slice_last_50_of_100k_ms"] = await slice_ms(stub)
            figures["append_cost_1m_vs_100"] = await append_cost(
                server, stub, size.long, size.rounds, size.seconds
            )
    figures["bytes_per_1k_event"] = await bytes_per_event(root / "room", size.seconds)
    figures["tail_kb_each_of_1000"] = await tail_kb(root / "room", size.tails)
    return figures


async def _round(who: dict[str, Callable[[int], Awaitable[Result]]]) -> Round:
    return {
        (name, in_flight): await run(in_flight)
        for in_flight in IN_FLIGHT
        for name, run in who.items()
    }


async def _bounded(measured: Awaitable[Result]) -> Result:
    async with asyncio.timeout(_BOUND):
        return await measured


def ratios(rounds: list[Round]) -> dict[str, float]:
    """The claim's ratios, each the median of the rounds'."""

    def median(of: Callable[[Round], float]) -> float:
        return statistics.median(of(one) for one in rounds)

    def rate(peer: str, in_flight: int) -> float:
        return median(lambda one: one["sessiond", in_flight].rate / one[peer, in_flight].rate)

    print(f"64 in flight, over Redis with a bare client: {rate('redis, bare', 64):.2f}")
    for in_flight in IN_FLIGHT:
        print(f"{in_flight} in flight, of the limit: {rate('stream, SQLite', in_flight):.2f}")
    return {
        "append_64_vs_postgres": rate("postgres", 64),
        "append_64_vs_redis": rate("redis", 64),
        "append_256_vs_postgres_pipeline": rate("postgres", 256),
        "append_1_p50_vs_postgres": median(
            lambda one: one["sessiond", 1].p50 / one["postgres", 1].p50
        ),
        "append_64_p99_over_p50": median(
            lambda one: one["sessiond", 64].p99 / one["sessiond", 64].p50
        ),
    }


def syncs_per_second(path: Path, seconds: float) -> float:
    """Appends of 4 KiB, each with fdatasync: what the disk allows one writer."""
    count, started = 0, time.perf_counter()
    with path.open("ab", buffering=0) as file:
        while time.perf_counter() - started < seconds:
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            count += 1
    return count / (time.perf_counter() - started)


def _print(names: list[str], rounds: list[Round]) -> None:
    print(f"{'in flight':>24} {'events/s':>10} {'p50 ms':>8} {'p99 ms':>8}")
    for in_flight in IN_FLIGHT:
        for name in names:
            results = [one[name, in_flight] for one in rounds]
            rate, p50, p99 = (
                statistics.median(getattr(result, field) for result in results)
                for field in ("rate", "p50", "p99")
            )
            print(f"{name:>20} {in_flight:>3} {rate:>10,.0f} {p50:>8.2f} {p99:>8.2f}")


def main() -> None:
    """Measure, print, and end with JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything: no claim")
    parser.add_argument(
        "--tail-all", action="store_true", help="the live tail follows every session, not one"
    )
    options = parser.parse_args()
    size = replace(QUICK if options.quick else WHOLE, tail_all=options.tail_all)
    with tempfile.TemporaryDirectory(prefix="carpal-bench-") as folder:
        figures = uvloop.run(measure(Path(folder), size))
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
