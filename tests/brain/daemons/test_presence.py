"""A brain's own lease: held while it lives, taken anew when lost, never fought over."""

import asyncio
from typing import Any

import pytest

from brain.daemons.presence import Presence
from brain.session.leases import LeaseKeeper
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.v1 import session_pb2
from sessiond.store import StoreFull
from tests.brain.stage import WAIT
from tests.sessiond.serving import Serving


async def rows(sessions: Serving) -> list[tuple[str, bool, dict[str, str]]]:
    """The brains in the directory."""
    stub = await sessions.stub(Role.BRAIN, "brain-9")
    stream = stub.WatchLeases(session_pb2.WatchLeasesRequest(prefix="brain/"), timeout=WAIT)
    answer = await stream.read()
    stream.cancel()
    assert isinstance(answer, session_pb2.WatchLeasesResponse)
    return [
        (row.resource, row.expires_in.ToNanoseconds() > 0, dict(row.attributes))
        for row in answer.leases
    ]


async def test_a_brain_is_in_the_directory_from_take_to_leave(sessions: Serving) -> None:
    presence = Presence(LeaseKeeper(await sessions.brain(), 10.0), "brain-1")
    presence.attributes["enroll"] = "host:1"
    assert presence.left() == 0.0
    await presence.take()
    assert 0.0 < presence.left() <= 10.0
    assert await rows(sessions) == [("brain/brain-1", True, {"enroll": "host:1"})]
    await presence.leave()
    assert presence.left() == 0.0
    assert not any(live for _, live, _ in await rows(sessions))


async def test_a_lease_that_was_lost_is_said_and_taken_anew(sessions: Serving) -> None:
    keeper = LeaseKeeper(await sessions.brain(), 10.0)
    presence = Presence(keeper, "brain-1")
    first = await presence.take()
    lost = asyncio.Event()
    running = asyncio.create_task(presence.run(lost.set))
    async with asyncio.timeout(WAIT):
        keeper.drop(first)
        await lost.wait()
        while presence.left() == 0.0:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    assert presence._lease is not None
    assert presence._lease.epoch > first.epoch


async def test_a_brain_outlives_a_full_disk(
    sessions: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sessions.parts.writer._store
    begin, tries = store.begin, 0

    def no_room(needs: Any = ()) -> Any:
        nonlocal tries
        tries += 1
        if tries <= 4:
            raise StoreFull("no room")
        return begin(needs)

    monkeypatch.setattr(store, "begin", no_room)
    presence = Presence(LeaseKeeper(await sessions.brain(), 10.0), "brain-1")
    async with asyncio.timeout(WAIT):
        await presence.take()
    assert presence.left() > 0.0
    assert tries > 4


async def test_a_second_process_of_the_same_name_is_not_fought(sessions: Serving) -> None:
    keeper = LeaseKeeper(await sessions.brain(), 10.0)
    first = Presence(keeper, "brain-1")
    held = await first.take()
    running = asyncio.create_task(first.run(lambda: None))
    await Presence(LeaseKeeper(await sessions.brain(), 10.0), "brain-1").take()
    keeper.drop(held)  # as the renewal finds
    with pytest.raises(CarpalError) as caught:
        async with asyncio.timeout(WAIT):
            await running
    assert caught.value.reason is Reason.LEASE_HELD
    assert "another process runs as brain/brain-1" in caught.value.message


async def test_a_name_that_is_not_its_own_is_refused(sessions: Serving) -> None:
    presence = Presence(LeaseKeeper(await sessions.brain(), 10.0), "brain-2")
    with pytest.raises(CarpalError) as caught:
        await presence.take()
    assert caught.value.exit_code == 4
