"""One writer's queue: what waits goes together, urgent first, and nothing is lost or doubled."""

import asyncio

from carpal.coalesce import Outbox


class Sized(bytes):
    """A message of its own length."""

    def ByteSize(self) -> int:
        """See protobuf."""
        return len(self)


async def test_what_waits_leaves_together_and_in_order() -> None:
    outbox: Outbox[Sized] = Outbox()
    messages = [Sized(bytes([n])) for n in range(5)]
    for message in messages:
        outbox.put(message)
    outbox.close()
    assert [batch async for batch in outbox.frames()] == [messages]


async def test_what_is_urgent_overtakes_what_waits() -> None:
    outbox: Outbox[Sized] = Outbox()
    outbox.put(Sized(b"a"))
    outbox.put(Sized(b"b"), urgent=True)
    outbox.put(Sized(b"c"), urgent=True)
    outbox.close()
    assert [batch async for batch in outbox.frames()] == [[b"b", b"c", b"a"]]


async def test_a_frame_stays_within_its_size_unless_one_message_alone_is_larger() -> None:
    outbox: Outbox[Sized] = Outbox(frame_bytes=10)
    for size in (4, 6, 1, 25, 3):
        outbox.put(Sized(size))
    outbox.close()
    sizes = [[len(message) for message in batch] async for batch in outbox.frames()]
    assert sizes == [[4, 6], [1], [25], [3]]


async def test_a_writer_that_waits_is_woken_by_the_next_message() -> None:
    outbox: Outbox[Sized] = Outbox()
    frames = outbox.frames()
    waiting = asyncio.ensure_future(anext(frames))
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.put(Sized(b"a"))
    async with asyncio.timeout(5):
        assert await waiting == [b"a"]
        ending = asyncio.ensure_future(anext(frames, None))
        await asyncio.sleep(0)
        outbox.close()
        assert await ending is None


async def test_what_comes_after_the_close_is_dropped_and_what_came_before_is_sent() -> None:
    outbox: Outbox[Sized] = Outbox()
    outbox.put(Sized(b"a"))
    outbox.close()
    outbox.put(Sized(b"b"))
    outbox.close()
    assert [batch async for batch in outbox.frames()] == [[b"a"]]


async def test_what_is_put_while_a_frame_is_written_goes_with_the_next() -> None:
    outbox: Outbox[Sized] = Outbox()
    outbox.put(Sized(b"a"))
    seen = []
    async for batch in outbox.frames():
        seen.append(batch)
        if len(seen) == 1:
            outbox.put(Sized(b"b"))
            outbox.close()
    assert seen == [[b"a"], [b"b"]]
