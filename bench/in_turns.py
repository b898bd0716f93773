"""What takes turns, since machines wander: each once, again and again, and the median of each."""

import statistics
import time
from collections.abc import Awaitable, Callable

from carpal.v1 import hand_pb2

Once = Callable[[], Awaitable[object]]


async def timed(once: Once) -> float:
    """Milliseconds that it took. What answers with a failed result raises RuntimeError."""
    began = time.perf_counter()
    answer = await once()
    took = 1000 * (time.perf_counter() - began)
    if isinstance(answer, hand_pb2.Result) and answer.outcome != hand_pb2.OUTCOME_OK:
        raise RuntimeError(answer.content)
    return took


async def in_turns(count: int, *each: Once) -> list[float]:
    """The median of each in milliseconds over so many turns, and one before that is not kept."""
    times: list[list[float]] = [[] for _ in each]
    for turn in range(count + 1):
        for kept, once in zip(times, each, strict=True):
            took = await timed(once)
            if turn:
                kept.append(took)
    return [statistics.median(kept) for kept in times]
