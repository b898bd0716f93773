"""Following never loses an event, and shows what the driver does while it does it."""

import asyncio
from pathlib import Path

import pytest

from carpal.errors import NotFound, Unreachable
from carpal.operator.connection import connect
from carpal.operator.follow import follow
from carpal.operator.outcome import Turn
from carpal.v1 import orchestrator_pb2, types_pb2
from tests.operator.fakes import SECONDS, House, new_brain

SESSION = "sesn_1"


class Onlooker:
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.output = b""
        self.notices: list[str] = []
        self._changed = asyncio.Condition()

    def event(self, event: types_pb2.Event) -> None:
        self.positions.append(event.position)
        self._tell()

    def moment(self, moment: orchestrator_pb2.WatchResponse) -> None:
        self.output += moment.output.chunk.data
        self._tell()

    def watching(self) -> None:
        """Nothing depends on it here."""

    def notice(self, text: str) -> None:
        self.notices.append(text)
        self._tell()

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._changed:
                self._changed.notify_all()

        self._telling = asyncio.ensure_future(tell())

    async def until_positions(self, count: int) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.positions) >= count)

    async def until_output(self, output: bytes) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: self.output == output)

    async def until_noticed(self, count: int) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.notices) >= count)


async def finish(house: House) -> None:
    """The driver ends its turn."""
    await house.sessiond.append(SESSION, "session.status_running")
    await house.sessiond.append(
        SESSION, "session.status_idle", {"stop_reason": {"type": "end_turn"}}
    )


async def test_the_log_is_shown_from_its_start_until_the_turn_ends(house: House) -> None:
    await house.sessiond.append(SESSION, "user.message")
    onlooker, turn = Onlooker(), Turn(message=1)
    async with asyncio.timeout(SECONDS), connect(house.found) as operator:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow(operator, SESSION, onlooker, until=turn.take))
            await onlooker.until_positions(1)
            await finish(house)
        assert following.result().type == "session.status_idle"
    assert onlooker.positions == [1, 2, 3]
    assert onlooker.notices == []


async def test_a_session_that_does_not_exist_is_not_found(house: House) -> None:
    async with asyncio.timeout(SECONDS), connect(house.found) as operator:
        with pytest.raises(ExceptionGroup) as caught:
            await follow(operator, "sesn_none", Onlooker(), until=lambda event: False)
    assert caught.group_contains(NotFound)


async def test_output_is_shown_while_the_tool_runs(house: House) -> None:
    await house.sessiond.append(SESSION, "user.message")
    onlooker, turn = Onlooker(), Turn(message=1)
    async with (
        asyncio.timeout(SECONDS),
        house.serve_brain() as server,
        connect(house.found) as operator,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(follow(operator, SESSION, onlooker, until=turn.take))
        house.sessiond.lease(f"session/{SESSION}", server.address)
        await house.brain.watched()
        house.brain.output("c", 0, b"working")
        await onlooker.until_output(b"working")
        await finish(house)


async def test_when_the_lease_moves_the_next_driver_is_watched(house: House) -> None:
    await house.sessiond.append(SESSION, "user.message")
    onlooker, turn, second = Onlooker(), Turn(message=1), new_brain()
    async with (
        asyncio.timeout(SECONDS),
        house.serve_brain("brain-2", second) as heir,
        connect(house.found) as operator,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(follow(operator, SESSION, onlooker, until=turn.take))
        async with house.serve_brain() as server:
            house.sessiond.lease(f"session/{SESSION}", server.address)
            await house.brain.watched()
            house.brain.output("c", 0, b"a")
            await onlooker.until_output(b"a")
        house.sessiond.expire(f"session/{SESSION}")
        house.sessiond.lease(f"session/{SESSION}", heir.address, epoch=2)
        await second.watched()
        second.output("c", 1, b"b")
        await onlooker.until_output(b"ab")
        await finish(house)
    assert len(house.brain.watchers) == 1


async def test_a_lease_that_is_only_renewed_starts_no_second_watch(house: House) -> None:
    await house.sessiond.append(SESSION, "user.message")
    onlooker, turn = Onlooker(), Turn(message=1)
    async with (
        asyncio.timeout(SECONDS),
        house.serve_brain() as server,
        connect(house.found) as operator,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(follow(operator, SESSION, onlooker, until=turn.take))
        house.sessiond.lease(f"session/{SESSION}", server.address)
        await house.brain.watched()
        house.sessiond.lease(f"session/{SESSION}", server.address)
        house.brain.output("c", 0, b"x")
        await onlooker.until_output(b"x")
        await finish(house)
    assert len(house.brain.watchers) == 1


async def test_after_a_restart_of_sessiond_the_tail_goes_on_where_it_was(tmp_path: Path) -> None:
    house = House(tmp_path)
    onlooker, turn = Onlooker(), Turn(message=1)
    await house.sessiond.append(SESSION, "user.message")
    async with house.serve_sessiond() as server:
        address = server.address
    async with (
        asyncio.timeout(SECONDS),
        connect(house.found) as operator,
        asyncio.TaskGroup() as group,
    ):
        async with house.serve_sessiond(address):
            group.create_task(follow(operator, SESSION, onlooker, until=turn.take))
            await onlooker.until_positions(1)
        await onlooker.until_noticed(1)
        await house.sessiond.append(SESSION, "session.status_running")
        async with house.serve_sessiond(address):
            await onlooker.until_positions(2)
            await house.sessiond.append(SESSION, "session.status_idle")
            await onlooker.until_positions(3)
    assert onlooker.positions == [1, 2, 3]
    assert house.sessiond.tails[-1] == 1
    assert "trying again" in onlooker.notices[0]
    assert onlooker.notices[-1].endswith("answers again")


async def test_when_sessiond_stays_away_following_gives_up_and_says_the_session_goes_on(
    tmp_path: Path,
) -> None:
    house = House(tmp_path)
    async with house.serve_sessiond():
        pass
    async with asyncio.timeout(SECONDS), connect(house.found) as operator:
        with pytest.raises(ExceptionGroup) as caught:
            await follow(
                operator, SESSION, Onlooker(), until=lambda event: False, live=False, patience=0.2
            )
    error = caught.value.exceptions[0]
    assert isinstance(error, Unreachable)
    assert error.exit_code == 3
    assert "goes on" in str(error)
