"""What a measurement gives: a rate, and how long each event took to be durable."""

import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

DATA = os.urandom(512).hex().encode()
"""1 KiB, an event's data."""
WARM = 0.3
"""Seconds at the start of a measurement that are not counted, for us and for our peers."""


@dataclass(frozen=True)
class Result:
    """Events per second, and milliseconds from sending one to knowing that it is on disk."""

    rate: float
    p50: float
    p99: float


@dataclass
class Watch:
    """Takes the time of events until it is over."""

    seconds: float
    _started: float = field(default_factory=time.perf_counter)
    _latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counted_from = self._started + WARM
        self.until = self._counted_from + self.seconds

    def note(self, sent: float, now: float, count: int = 1) -> None:
        """So many events, sent then, are durable now; what comes too early or late is left out."""
        if self._counted_from <= now < self.until:
            self._latencies.extend([now - sent] * count)

    def result(self) -> Result:
        """What was noted."""
        ordered = sorted(self._latencies)
        if not ordered:
            raise RuntimeError("nothing became durable in the time of the measurement")
        return Result(
            rate=len(ordered) / self.seconds,
            p50=1000 * ordered[len(ordered) // 2],
            p99=1000 * ordered[len(ordered) * 99 // 100],
        )


def percentiles(waits: list[float]) -> tuple[float, float]:
    """Median, and the 95th of a hundred."""
    ordered = sorted(waits)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


@dataclass(frozen=True)
class Goal:
    """What a figure is to be."""

    at_most: float | None = None
    at_least: float | None = None

    def met(self, value: float) -> bool:
        """Whether it is."""
        low, high = self.at_least, self.at_most
        return (low is None or value >= low) and (high is None or value <= high)

    def __str__(self) -> str:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


def against(figures: Mapping[str, float], goals: Mapping[str, Goal]) -> None:
    """Print each figure that has a goal, and whether it meets it."""
    for name, goal in goals.items():
        if name in figures:
            verdict = "met" if goal.met(figures[name]) else "MISSED"
            print(f"{name}: {figures[name]:.3g}; goal {goal}: {verdict}", flush=True)
