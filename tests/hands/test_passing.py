"""The daemon's end of the passage, with hands at the other end that keep to nothing."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hands.builtin import passing
from hands.contract import Call, MountFailed, Placing, Step
from tests.hands.place import PATIENCE


class Hostile:
    """A hand that connects, and then neither reads nor ends its call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cancelled: list[str] = []
        self.connected: list[socket.socket] = []

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        if "socket" in call.input:
            there = socket.socket(socket.AF_UNIX)
            handle = os.open(self.folder, os.O_PATH)
            there.connect(f"/proc/self/fd/{handle}/{call.input['socket']}")
            os.close(handle)
            self.connected.append(there)
        await asyncio.Event().wait()
        yield  # type: ignore[misc] # never

    async def cancel(self, call_id: str, grace: float) -> None:
        self.cancelled.append(call_id)

    async def acknowledge(self, call_id: str) -> None:
        raise AssertionError("it never ended")


async def _data(size: int) -> AsyncIterator[bytes]:
    yield bytes(size)


@pytest.mark.parametrize("size", [10, 100_000, 10_000_000])
async def test_a_hand_that_connects_and_reads_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Also when all fits into buffers, and its supervisor never says how it ended."""
    monkeypatch.setattr(passing, "_IDLE_LIMIT", 0.2)
    monkeypatch.setattr(passing, "_CONNECT_LIMIT", 0.2)
    monkeypatch.setattr(passing, "LIMIT", 0.5)
    hand: Any = Hostile(tmp_path)
    with pytest.raises(MountFailed):
        async with asyncio.timeout(PATIENCE):
            await passing.place(hand, tmp_path, Placing("file", "f"), _data(size))
    assert hand.cancelled
    assert list(tmp_path.iterdir()) == []
    hand.connected[0].close()


async def test_a_hand_that_does_not_say_how_a_clone_or_a_save_ended_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "_CONNECT_LIMIT", 0.2)
    monkeypatch.setattr(passing, "LIMIT", 0.3)
    hand: Any = Hostile(tmp_path)
    placing = Placing("git", "r", "http://127.0.0.1/r")
    for trying in (
        passing.place(hand, tmp_path, placing, _data(0)),
        passing.save(hand, tmp_path, asyncio.Queue[bytes]().put),
    ):
        with pytest.raises(MountFailed) as caught:
            async with asyncio.timeout(PATIENCE):
                await trying
        assert "the hand was not done with it in" in str(caught.value)
    assert len(hand.cancelled) == 2
    hand.connected[0].close()


async def test_a_mount_that_is_given_up_is_cancelled_in_the_hand(tmp_path: Path) -> None:
    hand: Any = Hostile(tmp_path)
    placing = asyncio.create_task(
        passing.place(hand, tmp_path, Placing("file", "f"), _data(10_000_000))
    )
    begun = time.monotonic()
    while not hand.connected and time.monotonic() - begun < PATIENCE:  # noqa: ASYNC110 - at once
        await asyncio.sleep(0.01)
    placing.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({placing})
    assert placing.cancelled()
    assert hand.cancelled
    hand.connected[0].close()
