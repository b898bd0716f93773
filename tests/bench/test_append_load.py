"""The benchmark's load: it waits for what is on the way, and for nothing that has come."""

import asyncio
from collections import deque
from typing import Any

import pytest

from bench.append_load import Load
from bench.figures import WARM, Watch
from carpal.v1 import session_pb2 as pb
from tests.pace import AT_ONCE

IN_FLIGHT = 4


class Prompt:
    """Acknowledges each frame as soon as it is written."""

    def __init__(self, refusal: str = "") -> None:
        self.most = 0
        self._refusal = refusal
        self._acks: deque[pb.AppendResponse] = deque()

    def Append(self, timeout: float) -> "Prompt":
        return self

    async def write(self, frame: pb.AppendRequest) -> None:
        self.most = max(self.most, len(frame.groups))
        response = pb.AppendResponse()
        for group in frame.groups:
            ack = response.acks.add(sequence=group.sequence)
            if self._refusal:
                ack.status.message = self._refusal
        self._acks.append(response)

    async def read(self) -> pb.AppendResponse:
        return self._acks.popleft()

    async def done_writing(self) -> None:
        assert not self._acks, "an ack was not read"


def load(stub: Any) -> Load:
    return Load(stub, {"one": 1, "two": 1}, IN_FLIGHT, 0.05)


async def test_a_load_keeps_as_many_in_flight_as_it_may_and_reads_every_ack() -> None:
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
