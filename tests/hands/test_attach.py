"""Large output over the link: on a stream of its own, whole, whatever breaks and whoever stalls."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import hands.attach
from carpal.backoff import Backoff
from carpal.errors import CarpalError
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.inside import spool
from hands.inside.output import KEEP
from hands.link.dispatch import INLINE
from tests.hands.fake_brain import Asked, FakeBrain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, let_go, until
from tests.hands.test_output import BIG, COUNT, counted

FLOOD = "head -c 100000000 /dev/zero"
"""More than any stream and any spool takes."""


@pytest.fixture
async def machine(machine: Machine) -> AsyncIterator[Machine]:
    """The machine, with its daemon running."""
    async with machine.daemon():
        yield machine


@pytest.fixture
async def asked(machine: Machine, one: FakeBrain) -> Asked:
    """The link, and a hand `h`."""
    linked = await one.link()
    await linked.provision("h")
    return linked


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long is waited at most for another Attach stream; here nobody waits, nor gets older."""
    asked_for: list[float] = []

    class Noted(Backoff):
        def next(self) -> float:
            asked_for.append(super().next())
            return 0.0

    noted = functools.partial(Noted, uniform=lambda _low, high: high, clock=lambda: 0.0)
    monkeypatch.setattr(hands.attach, "Backoff", noted)
    return asked_for


class Read:
    """What was read of a call, checked as it comes: no gap that is not said, no repeat."""

    def __init__(self) -> None:
        self.data = b""
        self.offset = 0
        self.dropped = 0
        self.sizes: list[int] = []
        self.result = hand_pb2.Result()

    def take(self, response: hand_pb2.ExecuteResponse) -> bool:
        """One more; whether it was the last."""
        if response.HasField("result"):
            self.result = response.result
            return True
        chunk = response.output
        assert chunk.offset == self.offset + chunk.dropped_bytes
        self.data += chunk.data
        self.sizes.append(len(chunk.data))
        self.dropped += chunk.dropped_bytes
        self.offset = chunk.offset + len(chunk.data)
        return False

    async def all(self, replies: AsyncIterator[pb.Reply]) -> "Read":
        """To the end."""
        async with asyncio.timeout(PATIENCE):
            async for reply in replies:
                if self.take(reply.execute):
                    assert reply.last
        assert self.result.content, "the answer ended without a result"
        return self


def _execute(asked: Asked, command: str, call_id: str = "c", offset: int = 0) -> Any:
    request = hand_pb2.ExecuteRequest(
        driver=asked.driver, hand_id="h", call_id=call_id, name="bash", output_offset=offset
    )
    request.input = b'{"command": "%s"}' % command.encode()
    return asked.link.call(pb.Request(execute=request))


async def test_small_output_travels_inline_and_large_output_on_a_stream_of_its_own(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    read = await Read().all(_execute(asked, f"head -c {INLINE} /dev/zero", "small"))
    assert read.data == bytes(INLINE)
    assert one.attached[1:] == [], "32 KiB of output are inline; a result beyond moves"
    read = await Read().all(_execute(asked, "echo hi", "tiny"))
    assert (read.data, read.result.content) == (b"hi\n", "hi\n")
    before = len(one.attached)
    read = await Read().all(_execute(asked, COUNT))
    assert (read.data, read.dropped) == (counted(), 0)
    assert read.result.outcome == hand_pb2.OUTCOME_OK
    assert max(read.sizes) < 256 * 1024
    [opening] = one.attached[before:]
    assert (opening.call_id, opening.epoch) == ("c", one.epoch)
    assert not asked.link._link.unfinished


async def test_a_brain_without_attach_streams_gets_the_beginning_inline_and_the_rest_counted(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    one.capabilities = []
    asked.link.end(None)
    asked = await one.link()
    read = await Read().all(_execute(asked, COUNT))
    assert counted().startswith(read.data)
    assert len(read.data) <= KEEP
    assert len(read.data) + read.dropped == read.result.output_bytes == BIG
    assert one.attached == []


async def test_output_has_no_gap_and_no_repeat_when_its_stream_breaks_at_any_chunk_l22(
    machine: Machine, one: FakeBrain, asked: Asked, waits: list[float]
) -> None:
    replies = _execute(asked, COUNT)
    read, breaks = Read(), 0
    async with asyncio.timeout(PATIENCE), aclosing(replies):
        async for reply in replies:
            if read.take(reply.execute):
                break
            breaks += one.break_attached()
    assert (read.data, read.dropped) == (counted(), 0)
    assert breaks >= 3
    assert len(waits) >= 3
    assert len(one.attached) > breaks


async def test_an_attach_stream_that_breaks_soon_again_and_again_is_opened_ever_less_often(
    machine: Machine, one: FakeBrain, asked: Asked, waits: list[float]
) -> None:
    replies = _execute(asked, COUNT)
    read = Read()
    async with asyncio.timeout(PATIENCE), aclosing(replies):
        async for reply in replies:
            if read.take(reply.execute):
                break
            one.break_attached()
    assert waits[:4] == [0.05, 0.1, 0.2, 0.4], "each stream gave something, and lasted a moment"


async def test_output_has_no_gap_and_no_repeat_when_the_link_is_cut_at_any_chunk_l22_s08(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    read = Read()
    cuts = 0
    while not read.result.content:
        replies, chunks = _execute(asked, COUNT, offset=read.offset), 0
        try:
            async with asyncio.timeout(PATIENCE), aclosing(replies):
                async for reply in replies:
                    if read.take(reply.execute):
                        break
                    chunks += 1
                    if chunks == 6:  # whatever is on its way is lost with the link
                        asked.link.end(None)
        except CarpalError:
            asked = await one.link()
            cuts += 1
    assert cuts >= 2
    assert (read.data, read.dropped) == (counted(), 0)
    again = await Read().all(_execute(asked, COUNT))
    assert again.data == counted(), "also for who comes later and has read nothing"
    assert again.result == read.result


async def test_a_call_begun_before_a_cut_is_readable_and_killable_after_it_s08_l24(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    command = f"{COUNT}; mkfifo go; read x < go; echo dead"
    read = Read()
    replies = _execute(asked, command)
    async with asyncio.timeout(PATIENCE):
        while read.offset < BIG:
            read.take((await anext(replies)).execute)
    asked.link.end(None)
    with pytest.raises(CarpalError):
        await anext(replies)
    asked = await one.link()
    rest = asyncio.create_task(read.all(_execute(asked, command, offset=read.offset)))
    go = machine.files.hands / "h/workspace/go"
    await until(go.exists, "the call does not go on")
    await asked.ask(cancel=hand_pb2.CancelRequest(driver=asked.driver, hand_id="h", call_id="c"))
    async with asyncio.timeout(PATIENCE):
        await rest
    assert read.result.outcome == hand_pb2.OUTCOME_CANCELLED
    assert read.data == counted()


@pytest.mark.timeout(120)
async def test_a_reader_that_stalls_delays_no_other_call_and_no_heartbeat_l23(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    stalled, read = _execute(asked, FLOOD), Read()
    async with asyncio.timeout(PATIENCE):
        read.take((await anext(stalled)).execute)
    await asked.provision("h2")
    folder = machine.files.hands / "h/spool/c"
    await until(lambda: spool.held(folder) > 4 * spool.PIECE, "the spool does not fill")
    heartbeats = asked.link._link._pace
    for number in range(20):
        request = hand_pb2.ExecuteRequest(
            driver=asked.driver, hand_id="h2", call_id=f"o{number}", name="bash"
        )
        request.input = b'{"command": "echo on"}'
        reply = await asked.ask(execute=request)
        assert reply.execute.result.content == "on\n"
    assert asked.link.open
    assert not heartbeats.silent(asyncio.get_running_loop().time(), 0.0)
    assert spool.held(folder) <= spool.LIMIT
    await read.all(stalled)
    assert read.dropped > 0
    assert len(read.data) + read.dropped == read.result.output_bytes == 100_000_000
    assert f"[{read.result.omitted_bytes} bytes omitted]" in read.result.content


async def test_who_leaves_a_moved_answer_ends_its_stream_and_the_call_goes_on(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    command = f"{COUNT}; mkfifo go; read x < go; echo ran > log"
    replies, read = _execute(asked, command), Read()
    async with asyncio.timeout(PATIENCE):
        while read.offset < BIG:
            read.take((await anext(replies)).execute)
    await replies.aclose()
    await until(lambda: one.serving == 0, "the stream goes on")
    await let_go(machine.files.hands / "h/workspace/go")
    await until((machine.files.hands / "h/workspace/log").exists, "the call ended with it")
    assert len(one.attached) == 1


async def _refused(asked: Asked, one: FakeBrain, change: Callable[[pb.AttachOpen], None]) -> str:
    """The reason with which a brain refuses a stream like the one that serves, but changed."""
    opening = pb.AttachOpen()
    opening.CopyFrom(one.attached[-1])
    change(opening)
    with pytest.raises(CarpalError) as caught:
        asked.link._link.attach(opening)
    return str(caught.value.reason)


async def test_an_attach_stream_of_an_old_epoch_or_an_unknown_request_is_refused(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    def older(opening: pb.AttachOpen) -> None:
        opening.epoch -= 1

    def other_request(opening: pb.AttachOpen) -> None:
        opening.request_id += 7

    def other_call(opening: pb.AttachOpen) -> None:
        opening.call_id = "another"

    replies, read = _execute(asked, FLOOD), Read()
    async with asyncio.timeout(PATIENCE):
        while not one.attached:
            read.take((await anext(replies)).execute)
    for change in (older, other_request, other_call):
        assert await _refused(asked, one, change) == "CALL_NOT_FOUND"
    await replies.aclose()


def _peak() -> int:
    """Bytes of memory this process has had at most since that was set back."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_gigabyte_from_one_call_costs_both_ends_of_the_link_together_less_than_64_mb(
    machine: Machine, one: FakeBrain, asked: Asked
) -> None:
    await Read().all(_execute(asked, COUNT, "warm"))  # what is loaded and made but once
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    size, read, kept = 1_000_000_000, Read(), 0
    async with asyncio.timeout(5 * PATIENCE):
        async for reply in _execute(asked, f"head -c {size} /dev/zero"):
            read.take(reply.execute)
            kept, read.data = kept + len(read.data), b""
    assert _peak() - before < 64 * 1024 * 1024
    assert kept + read.dropped == read.result.output_bytes == size
    assert kept > spool.LIMIT
