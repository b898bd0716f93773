"""Calls whose blobs are long on their way: what happens meanwhile holds for them too."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.blobs import Blobs
from hands.builtin.process import ProcessType
from hands.contract import Call, Description, Order, Provisioned, Step
from tests.hands.place import PATIENCE, Place, Watched, open_place, until

DATA = b"what another hand gave"
DIGEST = hashlib.sha256(DATA).hexdigest()


class Slow(Blobs):
    """Blobs that come once they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.there = asyncio.Event(), asyncio.Event()

    async def read(self, session_id: str, digest: bytes) -> AsyncIterator[bytes]:
        self.asked.set()
        await self.there.wait()
        yield DATA


class Reading(ProcessType):
    """Its shell takes a blob, too."""

    def __init__(self) -> None:
        super().__init__(sandbox="off")
        self.told: asyncio.Queue[str] = asyncio.Queue()

    def describe(self) -> Description:
        found = super().describe()
        (bash,) = (tool for tool in found.tools if tool.name == "bash")
        parts = {**bash.input_schema["properties"], "of": {"type": "string", "format": "blob"}}
        return replace(
            found, tools=[replace(bash, input_schema={**bash.input_schema, "properties": parts})]
        )

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        made = await super().provision(order, progress)
        return replace(made, hand=_Reading(made.hand, self.told))


class _Reading:
    """Its hand, that says which calls it is told."""

    def __init__(self, hand: Any, told: asyncio.Queue[str]) -> None:
        self._hand, self._told = hand, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hand, name)

    async def place(self, *given: Any) -> str:
        said: str = await self._hand.place(*given)
        return said

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        self._told.put_nowait(call.call_id)
        given = {name: value for name, value in call.input.items() if name != "of"}
        async for step in self._hand.execute(replace(call, input=given)):
            yield step


@pytest.fixture
def blobs() -> Slow:
    return Slow()


@pytest.fixture
async def kind() -> Reading:
    return Reading()


@pytest.fixture
async def place(tmp_path: Path, blobs: Slow, kind: Reading) -> AsyncIterator[Place]:
    async with open_place(tmp_path / "s", process=kind, blobs=blobs) as place:
        yield place


async def fetching(place: Place, blobs: Slow, hand_id: str) -> Watched:
    """A call that waits for its blob."""
    call = place.begin(place.request(hand_id, command=f"cat blobs/{DIGEST}", of=DIGEST))
    async with asyncio.timeout(PATIENCE):
        await blobs.asked.wait()
    return call


async def test_a_call_whose_blob_comes_while_a_person_has_control_begins_once_they_gave_it_back(
    place: Place, blobs: Slow, kind: Reading
) -> None:
    hand_id = await place.hand()
    call = await fetching(place, blobs, hand_id)
    keeper = place.inventory.keepers[hand_id]
    file = place.inventory.folder_of(hand_id) / f"workspace/blobs/{DIGEST}"
    with keeper.held() as running:
        assert running == []
        blobs.there.set()
        begun = asyncio.create_task(kind.told.get())
        await until(file.exists, "the blob is not there")
        await asyncio.wait({begun}, timeout=0.3)
        assert not begun.done()
        assert keeper.running == []
    async with asyncio.timeout(PATIENCE):
        assert await begun == call.call_id
    assert (await call.result()).content == DATA.decode()


async def test_a_call_that_is_cancelled_while_its_blob_is_fetched_holds_up_no_other(
    place: Place, blobs: Slow, kind: Reading
) -> None:
    hand_id = await place.hand()
    call = await fetching(place, blobs, hand_id)
    cancel = pb.CancelRequest(driver=place.driver(), hand_id=hand_id, call_id=call.call_id)
    await place.service.cancel(cancel)
    assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
    assert (await place.sh(hand_id, "echo next")).content == "next\n"
    assert kind.told.qsize() == 1


async def test_a_hand_that_dies_while_a_blob_is_fetched_is_lost_at_once(
    place: Place, blobs: Slow, kind: Reading
) -> None:
    hand_id = await place.hand()
    call = await fetching(place, blobs, hand_id)
    os.kill(place.supervisor(hand_id), signal.SIGKILL)
    result = await call.result()
    assert result.outcome == pb.OUTCOME_LOST
    assert "did not start" in result.content
    assert kind.told.empty()


async def test_a_call_whose_blob_was_on_its_way_when_the_daemon_died_was_never_accepted(
    tmp_path: Path, kind: Reading
) -> None:
    blobs = Slow()
    async with open_place(tmp_path / "s", process=kind, blobs=blobs, end=False) as place:
        hand_id = await place.hand()
        call = await fetching(place, blobs, hand_id)
        await call.leave()
    async with open_place(tmp_path / "s", process=kind) as place:
        claim = pb.ClaimRequest(driver=place.driver(), hand_id=hand_id, call_ids=[call.call_id])
        (told,) = (await place.service.claim(claim)).calls
        assert told.state == pb.CALL_STATE_UNKNOWN


async def test_a_hand_released_while_a_blob_is_fetched_did_nothing_of_its_call(
    place: Place, blobs: Slow, kind: Reading
) -> None:
    hand_id = await place.hand()
    call = await fetching(place, blobs, hand_id)
    releasing = asyncio.create_task(place.release(hand_id))
    result = await call.result()
    assert result.outcome == pb.OUTCOME_CANCELLED
    assert "before it started" in result.content
    assert await releasing
    assert kind.told.empty()


async def test_a_fault_of_the_type_before_a_call_begins_does_not_say_that_it_may_have_happened(
    place: Place, blobs: Slow, kind: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_given: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(_Reading, "place", broken)
    hand_id = await place.hand()
    request = place.request(hand_id, command=f"cat blobs/{DIGEST}", of=DIGEST)
    result = (await place.steps(request))[-1].result
    assert result.outcome == pb.OUTCOME_INTERRUPTED
    assert "did not start" in result.content
    assert kind.told.empty()


async def test_a_hand_that_dies_while_a_person_has_control_takes_the_calls_that_wait_with_it(
    place: Place, blobs: Slow, kind: Reading
) -> None:
    hand_id = await place.hand()
    call = await fetching(place, blobs, hand_id)
    with place.inventory.keepers[hand_id].held():
        blobs.there.set()
        os.kill(place.supervisor(hand_id), signal.SIGKILL)
        assert (await call.result()).outcome == pb.OUTCOME_LOST
    assert kind.told.empty()


async def test_who_takes_control_again_at_once_finds_no_call_begun(
    place: Place, kind: Reading
) -> None:
    hand_id = await place.hand()
    keeper = place.inventory.keepers[hand_id]
    with keeper.held():
        call = place.begin(place.request(hand_id, command="echo x"))
        begun = asyncio.create_task(kind.told.get())
        for _ in range(5):  # it is in line, and its turn
            await asyncio.sleep(0)
    with keeper.held() as running:
        assert running == []
        await asyncio.wait({begun}, timeout=0.2)
        assert not begun.done()
    assert (await call.result()).content == "x\n"
    assert await begun == call.call_id
