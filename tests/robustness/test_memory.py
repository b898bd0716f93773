"""What sessiond holds in memory does not grow with what it serves: logs, readers, those who stop.

A real process; resident memory before and after. Its allocator keeps what it once had, so what is
measured comes after the same was done once at a small size.
"""

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from tests.pace import times
from tests.robustness.bulk import GROUP, append
from tests.robustness.held import create
from tests.robustness.service import SECONDS, Service

if TYPE_CHECKING:
    from carpal.v1.session_pb2_grpc import SessionAsyncStub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LARGE = 30_000
SLICES = 200
_READ = (
    "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables "
    "WHERE relname = 'events'"
)
_ALL_LEFT = """DO $$ BEGIN
  SET LOCAL statement_timeout = '60s';
  WHILE EXISTS (
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
  ) LOOP
    PERFORM pg_sleep(0.01);
    PERFORM pg_stat_clear_snapshot();
  END LOOP;
END $$"""
"""Waits until sessiond's connections have ended: by then, what they did is counted."""


async def test_s04_the_last_50_of_30_000_events_cost_50_and_no_memory(one: Service) -> None:
    async with asyncio.timeout(2 * SECONDS), one.brain() as stub:
        await create(stub, "small")
        await create(stub, "large")
        await append(stub, "small", 0, GROUP, 1000)
        await last_50(stub, "small", SLICES)
        await append(stub, "large", 0, LARGE, 1000)
        await last_50(stub, "large", 1)
        before = one.resident_kb()
        await last_50(stub, "large", SLICES)
        grown = one.resident_kb() - before
    assert grown < 4 * 1024, f"{SLICES} slices made it grow by {grown} KiB"
    if one.url:
        read = await rows_read(one, "large")
        assert read < 55 * SLICES, f"{SLICES} slices of 50 events read {read} rows"


async def last_50(stub: "SessionAsyncStub", session_id: str, often: int) -> None:
    for _ in range(often):
        request = pb.GetEventsRequest(
            session_id=session_id, order=types_pb2.EVENT_ORDER_NEWEST_FIRST, limit=50
        )
        answer = await stub.GetEvents(request)
        assert [e.position for e in answer.events] == list(range(answer.head, answer.head - 50, -1))


async def rows_read(one: Service, session_id: str) -> int:
    """How many rows of events the database reads for the slices, as it counts them itself.

    It counts when a connection ends, so sessiond is started for them alone.
    """
    await one.kill()
    with psycopg.connect(one.url, autocommit=True) as connection:
        connection.execute(_ALL_LEFT)
        before = connection.execute(_READ).fetchone()
        await one.start()
        async with one.brain() as stub:
            await last_50(stub, session_id, SLICES)
        await one.kill()
        connection.execute(_ALL_LEFT)
        after = connection.execute(_READ).fetchone()
    assert before is not None
    assert after is not None
    return int(after[0] - before[0])


async def test_a_tail_whose_reader_stops_slows_no_writer_costs_no_memory_and_catches_up(
    one: Service,
) -> None:
    count = times(20_000 if one.url else 100_000, 100_000)
    async with asyncio.timeout(4 * SECONDS), one.brain() as stub, one.brain("brain-2") as other:
        await create(stub, "before")
        await create(stub, "stalled")
        await append(stub, "before", 0, 10_000, 100)  # until caches are full
        await append(stub, "stalled", 0, GROUP, 100)
        cursor = types_pb2.TailCursor(session_id="stalled")
        tail = other.TailEvents(pb.TailEventsRequest(cursors=[cursor]))
        first = await tail.read()
        assert isinstance(first, pb.TailEventsResponse)
        at_first = one.resident_kb()
        # Nobody reads, until every event is acknowledged.
        await append(stub, "stalled", GROUP, count, 100)
        grown = one.resident_kb() - at_first
        await asyncio.sleep(times(0, 60))  # how long it stops is the fault
        read = len(first.events)
        messages = 0
        while read < GROUP + count:
            answer = await tail.read()
            assert isinstance(answer, pb.TailEventsResponse)
            messages += 1
            for event in answer.events:
                read += 1
                assert event.position == read
                assert event.id == f"e{read}"
        tail.cancel()
    assert messages > 1
    assert grown < 16 * 1024, f"it grew by {grown} KiB"
