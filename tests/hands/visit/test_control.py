"""What a person does in one control is that control's: none of it comes out in a later one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from carpal.errors import CarpalError
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands import controls
from hands.visit import view
from hands.visit.view import Watching

_SECONDS = 10.0


class Tunnel:
    """One that takes nothing until it is told to."""

    def __init__(self) -> None:
        self.opened = pb.EnterOpened(hand="game", hand_id="h1")
        self.takes = asyncio.Event()
        self.took = asyncio.Event()
        self.sent: list[bytes] = []
        self._ended = asyncio.Event()

    async def send(self, data: bytes) -> None:
        """Bytes for the hand."""
        await self.takes.wait()
        self.sent.append(data)
        self.took.set()

    async def end(self) -> None:
        """No more of them."""
        self._ended.set()

    async def came(self) -> AsyncIterator[hand_pb2.TunnelResponse]:
        """Its end."""
        await self._ended.wait()
        yield hand_pb2.TunnelResponse(end=hand_pb2.TunnelEnd())


class Ways:
    """A new tunnel for each control."""

    def __init__(self) -> None:
        self.tunnels: list[Tunnel] = []

    @asynccontextmanager
    async def enter(self, _: pb.EnterOpen) -> AsyncIterator[Tunnel]:
        """One more."""
        self.tunnels.append(Tunnel())
        yield self.tunnels[-1]


async def _controls(watching: Watching) -> None:
    await watching.take()
    number = 0
    while not watching.screen.control:
        await watching.screen.after(number, _SECONDS)
        number = watching.screen.change


async def test_what_a_hand_did_not_take_in_one_control_never_comes_out_in_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view, "_TAKING", 0.3)
    ways = Ways()
    watching = Watching(cast("Any", ways), cast("Any", Tunnel()), "s1")
    async with asyncio.timeout(_SECONDS):
        await _controls(watching)
        secret = [controls.Key("s", down=True)] * (view._EVENTS_MAX + 10)

        async def types() -> None:
            for event in secret:
                await watching.do(event)

        typing = asyncio.create_task(types())
        while not (watching._events and watching._events.full()):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        await watching.give_back()
        await _controls(watching)
        ways.tunnels[1].takes.set()
        with pytest.raises(CarpalError, match="does not take"):
            await typing
        await watching.do(controls.Key("x", down=True))
        await ways.tunnels[1].took.wait()
        await watching.give_back()
    assert [b'"x"' in each for each in ways.tunnels[1].sent] == [True]
    assert not ways.tunnels[0].sent
