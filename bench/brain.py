"""The brain: what it adds to a turn, and what very many, long and old sessions cost.

Real processes over mutual TLS; the model is the practice model and takes no time. Each figure is
printed with its goal. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.brain_many import at_once
from bench.brain_turns import log_growth, overhead
from bench.brain_wake import wakes
from bench.figures import Goal, against, percentiles
from bench.whole import whole


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    turns: int
    sessions: int
    calls: int
    events: int
    wakes: int


WHOLE = Size(turns=100, sessions=1_000, calls=200, events=100_000, wakes=20)
QUICK = Size(turns=5, sessions=300, calls=20, events=5_000, wakes=3)
"""Says whether all is in order; its figures are no claim."""
PARTS = ("turns", "growth", "sessions", "wake")
_ROOM = 60
"""Hands the daemon may have."""


def goals(size: Size) -> dict[str, Goal]:
    """Of each figure."""
    return {
        "turn_overhead_p50_ms": Goal(at_most=15),
        "turn_overhead_p95_ms": Goal(at_most=40),
        "sessions_at_once": Goal(at_least=size.sessions),
        "asked_again": Goal(at_most=0),
        "mb_per_session": Goal(at_most=1),
        "log_growth": Goal(at_most=1.1),
        "wake_100k_vs_1k": Goal(at_most=2),
    }


async def measure(folder: Path, size: Size, parts: Sequence[str]) -> dict[str, float]:
    """The figures of those parts; each has processes of its own."""
    figures: dict[str, float] = {}
    for part in parts:
        async with whole(folder / part, {"CARPAL_HANDS_MAX": str(_ROOM)}) as it:
            if part == "turns":
                p50s, p95s = [], []
                for case, waits in (await overhead(it, size.turns)).items():
                    p50, p95 = percentiles(waits)
                    print(f"with {case}: {p50:.1f} ms p50, {p95:.1f} ms p95", flush=True)
                    p50s.append(p50)
                    p95s.append(p95)
                figures |= {
                    "turn_overhead_p50_ms": max(p50s),
                    "turn_overhead_p95_ms": max(p95s),
                }
            elif part == "growth":
                figures["log_growth"] = await log_growth(it, size.calls)
            elif part == "sessions":
                figures |= await at_once(it, size.sessions)
            elif part == "wake":
                figures |= await wakes(it, size.events, size.wakes)
    return figures


def main() -> None:
    """Measure, print, and end with JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything: no claim")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; repeatable")
    options = parser.parse_args()
    logging.disable()
    size = QUICK if options.quick else WHOLE
    with tempfile.TemporaryDirectory(prefix="carpal-bench-") as folder:
        figures = asyncio.run(measure(Path(folder), size, options.only or PARTS))
    against(figures, goals(size))
    print(json.dumps({figure: round(value, 3) for figure, value in figures.items()}))


if __name__ == "__main__":
    main()
