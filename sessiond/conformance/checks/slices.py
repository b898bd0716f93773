"""Slices: before, after and around a position, by types, counted and capped."""

from typing import Any

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group

group = Group("slices")
NEWEST_FIRST = types_pb2.EVENT_ORDER_NEWEST_FIRST
MIB = 2**20


async def _numbered(bench: Bench, count: int) -> str:
    """A session of this many events."""
    return (await bench.session(bench.events(count))).session_id


async def _slice(bench: Bench, session_id: str, **fields: Any) -> pb.GetEventsResponse:
    return await bench.operator.GetEvents(pb.GetEventsRequest(session_id=session_id, **fields))


async def _at(bench: Bench, session_id: str, **fields: Any) -> tuple[list[int], bool]:
    """Positions of a slice, and whether there is more."""
    answer = await _slice(bench, session_id, **fields)
    return [event.position for event in answer.events], answer.more


@group
async def from_either_end(bench: Bench) -> None:
    """Without an anchor a slice begins at the start, or at the head when newest first."""
    id = await _numbered(bench, 10)
    equal("oldest first", await _at(bench, id), (list(range(1, 11)), False))
    equal("newest first", await _at(bench, id, order=NEWEST_FIRST), (list(range(10, 0, -1)), False))
    equal("three", await _at(bench, id, limit=3), ([1, 2, 3], True))
    newest = await _at(bench, id, limit=3, order=NEWEST_FIRST)
    equal("three, newest first", newest, ([10, 9, 8], True))


@group
async def after_a_position(bench: Bench) -> None:
    """`after` gives positions above it, in either order."""
    id = await _numbered(bench, 10)
    equal("after 4", await _at(bench, id, after=4, limit=3), ([5, 6, 7], True))
    equal("after 7", await _at(bench, id, after=7, limit=3), ([8, 9, 10], False))
    newest = await _at(bench, id, after=7, order=NEWEST_FIRST)
    equal("after 7, newest first", newest, ([10, 9, 8], False))
    equal("after the head", await _at(bench, id, after=10), ([], False))
    equal("beyond the head", await _at(bench, id, after=2**63), ([], False))


@group
async def before_a_position(bench: Bench) -> None:
    """`before` gives positions below it, in either order."""
    id = await _numbered(bench, 10)
    newest = await _at(bench, id, before=5, limit=3, order=NEWEST_FIRST)
    equal("before 5, newest first", newest, ([4, 3, 2], True))
    equal("before 5", await _at(bench, id, before=5), ([1, 2, 3, 4], False))
    equal("before 1", await _at(bench, id, before=1), ([], False))
    last = await _at(bench, id, before=2**63, limit=2, order=NEWEST_FIRST)
    equal("before any", last, ([10, 9], True))


@group
async def around_a_position(bench: Bench) -> None:
    """`around` gives half of the limit on each side of a position, itself included."""
    id = await _numbered(bench, 20)
    positions, _ = await _at(bench, id, around=10, limit=6)
    equal("how many", len(positions), 6)
    must(10 in positions, f"10 is not in {positions}")
    below, above = positions.index(10), 5 - positions.index(10)
    must(abs(below - above) <= 1, f"10 is not in the middle of {positions}")
    equal("in order", positions, list(range(10 - below, 11 + above)))
    turned, _ = await _at(bench, id, around=10, limit=6, order=NEWEST_FIRST)
    equal("newest first", turned, positions[::-1])
    start, _ = await _at(bench, id, around=1, limit=6)
    must(bool(start) and start[0] == 1, f"around 1: {start}")


@group
async def by_type(bench: Bench) -> None:
    """Types are exact, or prefixes that end in `.*`; several are any of them."""
    types = ["user.message", "user.interrupt", "system.message", "hand.event", "user.a.b"]
    id = (await bench.session([bench.event(type) for type in types])).session_id
    equal("exact", await _at(bench, id, types=["hand.event"]), ([4], False))
    equal("prefix", await _at(bench, id, types=["user.*"]), ([1, 2, 5], False))
    equal("not a part of a word", await _at(bench, id, types=["us.*"]), ([], False))
    equal("an exact one is no prefix", await _at(bench, id, types=["user.a"]), ([], False))
    equal("either", await _at(bench, id, types=["system.message", "user.a.*"]), ([3, 5], False))
    equal("more of the type", await _at(bench, id, types=["user.*"], limit=2), ([1, 2], True))
    rest = await _at(bench, id, types=["hand.event"], after=1, limit=1)
    equal("no more of the type", rest, ([4], False))


@group
async def type_malformed(bench: Bench) -> None:
    """A type with a `*` elsewhere than in a final `.*` is refused."""
    id = await _numbered(bench, 1)
    for bad in ("*", "user*", "us*.message", ""):
        with refused(Reason.INVALID_FIELD):
            await _slice(bench, id, types=[bad])


@group
async def counted(bench: Bench) -> None:
    """A slice has 100 events when no limit is given, up to 1,000 when asked, no more."""
    id = await _numbered(bench, 1000)
    equal("by default", await _at(bench, id), (list(range(1, 101)), True))
    equal("1,000", await _at(bench, id, limit=1000), (list(range(1, 1001)), False))
    with refused(Reason.INVALID_FIELD):
        await _slice(bench, id, limit=1001)


@group
async def capped(bench: Bench) -> None:
    """A slice stops before its data exceeds max_bytes, but one event always fits."""
    events = [bench.event(data=bytes(1000)) for _ in range(5)]
    id = (await bench.session(events)).session_id
    equal("exactly two", await _at(bench, id, max_bytes=2000), ([1, 2], True))
    equal("nearly three", await _at(bench, id, max_bytes=2999), ([1, 2], True))
    equal("one at least", await _at(bench, id, max_bytes=1), ([1], True))
    newest = await _at(bench, id, max_bytes=2000, order=NEWEST_FIRST)
    equal("newest first", newest, ([5, 4], True))


@group
async def capped_by_default(bench: Bench) -> None:
    """Without max_bytes a slice stops at 2 MiB of data."""
    id = (await bench.session()).session_id
    for size in (MIB, MIB, 1):
        await bench.emit(id, bench.event(data=bytes(size)))
    equal("2 MiB", await _at(bench, id), ([1, 2], True))
    equal("the rest", await _at(bench, id, after=2), ([3], False))


@group
async def head_is_told(bench: Bench) -> None:
    """Each slice says the log's head, also an empty one, and of an empty log."""
    id = await _numbered(bench, 3)
    equal("head", (await _slice(bench, id, limit=1)).head, 3)
    equal("head beyond", (await _slice(bench, id, after=9)).head, 3)
    empty = await bench.session()
    equal("of an empty log", (await _slice(bench, empty.session_id)).head, 0)


@group
async def walked_either_way(bench: Bench) -> None:
    """Slice after slice, either way, gives every event once."""
    id = await _numbered(bench, 50)
    up: list[int] = []
    more = True
    while more:
        positions, more = await _at(bench, id, after=up[-1] if up else 0, limit=7)
        must(bool(positions), "an empty slice before the end")
        up += positions
    equal("upwards", up, list(range(1, 51)))
    down: list[int] = []
    more = True
    while more:
        before = {"before": down[-1]} if down else {}
        positions, more = await _at(bench, id, limit=7, order=NEWEST_FIRST, **before)
        must(bool(positions), "an empty slice before the end")
        down += positions
    equal("downwards", down, list(range(50, 0, -1)))
