"""From a message's commit to the arrival of the first model request, with no hand provisioned.

Real processes over mutual TLS, the practice model at the end. Sessions are
new, one after another. The limit is 50 ms; the ratio is p50 to that. In the
same run, a bare EmitEvent round trip says what one durable hop costs here.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import httpx2

from tests.interaction.play import session
from tests.world import World, world

LIMIT_MS = 50.0


async def main(sessions: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as scratch:
        async with world(Path(scratch)) as it:
            waits = [await _one(it) for _ in range(sessions + 5)][5:]
            hops = [await _hop(it) for _ in range(sessions)]
    waits.sort()
    p50, p95 = statistics.median(waits), waits[int(len(waits) * 0.95)]
    hop = statistics.median(hops)
    print(f"first model request after {p50:.1f} ms (p50), {p95:.1f} ms (p95); limit {LIMIT_MS} ms")
    print(f"one durable EmitEvent: {hop:.2f} ms (p50); the whole way is {p50 / hop:.1f} of them")
    report = {
        "p50_ms": round(p50, 2),
        "p95_ms": round(p95, 2),
        "of_limit": round(p50 / LIMIT_MS, 3),
        "emit_p50_ms": round(hop, 2),
        "sessions": sessions,
    }
    print(json.dumps(report))


async def _one(it: World) -> float:
    url = it.running["practice"].facts["url"]
    async with httpx2.AsyncClient(base_url=url, timeout=30) as http:
        before = (await http.get("/practice/requests")).json()["requests"]
        seen = max((request["number"] for request in before), default=0)
        async with session(it, "hello") as made:
            said = await made.until_type("user.message")
            await made.until_type("session.status_idle")
            assert not [e for e in made.log if e.type.startswith("hand.")]
        after = (await http.get("/practice/requests", params={"after": seen})).json()["requests"]
    # The record is on the machine's monotonic clock; events have wall time.
    arrived = min(r["arrived"] for r in after) + time.time() - time.monotonic()
    return float(arrived - said.time.ToMicroseconds() / 1e6) * 1000


async def _hop(it: World) -> float:
    async with session(it, "hello") as made:
        await made.until_type("session.status_idle")
        started = time.monotonic()
        await made.interrupt()
        return (time.monotonic() - started) * 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=50)
    asyncio.run(main(parser.parse_args().sessions))
