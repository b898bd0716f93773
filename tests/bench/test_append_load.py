"""The benchmark's load: it waits for what is on the way, and for nothing that has come."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bench.append_load import Load
from bench.figures import WARM, Watch
from carpal.v1 import session_pb2 as pb
from tests.pace import AT_ONCE

IN_FLIGHT = 4


class Prompt:
    """Acknowledges each frame before the load is asked for the next one."""

    def __init__(self, refusal: str = "") -> None:
        self.most = 0
        self._refusal = refusal

    async def Append(
        self,
        frames: AsyncIterator[pb.AppendRequest],
        timeout: float,  # noqa: ASYNC109 - as gRPC calls it
    ) -> AsyncIterator[pb.AppendResponse]:
        async for frame in frames:
            self.most = max(self.most, len(frame.groups))
            response = pb.AppendResponse()
            for group in frame.groups:
                ack = response.acks.add(sequence=group.sequence)
                if self._refusal:
                    ack.status.message = self._refusal
            yield response


def load(stub: Any) -> Load:
    return Load(stub, {"one": 1, "two": 1}, IN_FLIGHT, 0.05)


async def test_an_ack_that_comes_while_a_frame_is_sent_is_not_waited_for_again() -> None:
    stub = Prompt()
    measured = load(stub)
    async with asyncio.timeout(AT_ONCE):
        await measured.run()
    assert measured.appended > IN_FLIGHT
    assert stub.most == IN_FLIGHT // 2, "half is on its way while half becomes durable"


async def test_a_refused_group_ends_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="lease is gone"):
        await load(Prompt("lease is gone")).run()


def test_what_ends_outside_the_time_of_a_measurement_is_not_counted() -> None:
    watch = Watch(1.0)
    begin = watch.until - 1.0
    for now in (begin - 0.1, begin + 0.5, watch.until + 0.1):
        watch.note(begin - WARM, now)
    result = watch.result()
    assert result.rate == 1
    assert result.p50 == pytest.approx(1000 * (WARM + 0.5))
