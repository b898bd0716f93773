"""Browser hands, for `scripts/bench hands`: how soon one is ready, and what it takes of memory.

Cold is each of them: a new sandbox, profile, driver and browser; the files are in the page cache.
"""

import os
import signal
import statistics
import time
from pathlib import Path

from carpal.v1 import hand_pb2
from tests.hands.browser.site import site
from tests.hands.place import Place

SHOTS = 20


async def browsers(place: Place, hands: int) -> dict[str, float]:
    """Their figures, over so many hands; the last of them is killed."""
    ready: list[float] = []
    shots: list[float] = []
    size = 0.0
    async with site() as there:
        for number in range(hands):
            began = time.perf_counter()
            hand = await place.hand(type="browser", egress=[there.rule])
            ready.append(1000 * (time.perf_counter() - began))
            last = number == hands - 1
            if last:
                await _run(place, hand, "navigate", url=there.url("/form"))
                for _ in range(SHOTS):
                    began = time.perf_counter()
                    await _run(place, hand, "screenshot")
                    shots.append(1000 * (time.perf_counter() - began))
                size = _pss_mb(place.supervisor(hand))
                os.kill(place.supervisor(hand), signal.SIGKILL)
            await place.release(hand)
    return {
        "browser_ready_ms": statistics.median(ready),
        "screenshot_ms": statistics.median(shots),
        "browser_mb": size,
    }


async def _run(place: Place, hand: str, name: str, **given: object) -> None:
    result = await place.run(hand, name, **given)
    if result.outcome != hand_pb2.OUTCOME_OK:
        raise RuntimeError(result.content)


def _pss_mb(supervisor: int) -> float:
    """Of all processes below it, each page counted once, in MB."""
    kb = 0
    for pid in _below(supervisor):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kb / 1024


def _below(supervisor: int) -> list[int]:
    """It, and its processes, however deep their namespaces are."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            after = (path / "stat").read_text().rpartition(")")[2]
        except OSError:
            continue
        parents[int(path.name)] = int(after.split()[1])
    found = [supervisor]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found
