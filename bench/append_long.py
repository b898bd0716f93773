"""A session's length must not show: what appending costs, and the last events of many."""

import statistics
import time
from typing import TYPE_CHECKING

from bench.append_load import WAIT, Load, fill, lease
from bench.figures import DATA
from bench.sessiond_process import Sessiond
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub  # known to the stubs alone

_SHORT = 100
_IN_FLIGHT = 64
_SLICE_OF = 100_000
_SLICES = 200
_SMALL = b"{}"


async def append_cost(
    server: Sessiond, stub: "SessionAsyncStub", long: int, rounds: int, seconds: float
) -> float:
    """sessiond's CPU time for an event of a session of `long` events, over one of a hundred."""
    await fill(stub, "long", long, _SMALL)
    ratios = []
    for number in range(rounds):
        short = f"short-{number}"
        await fill(stub, short, _SHORT, _SMALL)
        # In turn first and second, so that a machine that slows down favours neither.
        names = ("long", short) if number % 2 else (short, "long")
        cost = {name: await _cost(server, stub, name, seconds) for name in names}
        ratios.append(cost["long"] / cost[short])
    return statistics.median(ratios)


async def _cost(
    server: Sessiond, stub: "SessionAsyncStub", session_id: str, seconds: float
) -> float:
    load = Load(stub, {session_id: await lease(stub, session_id)}, _IN_FLIGHT, seconds)
    before = server.cpu_seconds()
    await load.run()
    return (server.cpu_seconds() - before) / load.appended


async def slice_ms(stub: "SessionAsyncStub") -> float:
    """Milliseconds, p50, for the last 50 of 100,000 events of 1 KB."""
    await fill(stub, "sliced", _SLICE_OF, DATA)
    request = pb.GetEventsRequest(
        session_id="sliced", order=types_pb2.EVENT_ORDER_NEWEST_FIRST, limit=50
    )
    times = []
    for _ in range(_SLICES):
        started = time.perf_counter()
        answer = await stub.GetEvents(request, timeout=WAIT)
        times.append(1000 * (time.perf_counter() - started))
        if [event.position for event in answer.events] != list(
            range(_SLICE_OF, _SLICE_OF - 50, -1)
        ):
            raise RuntimeError("the slice is not the last 50 events")
    return statistics.median(times)
