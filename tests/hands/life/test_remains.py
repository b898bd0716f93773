"""Hands of which something resists, results nobody took, and contents on their way at the end."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import pytest

from carpal.errors import CarpalError
from carpal.hand_mark import mark
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import types_pb2
from hands import inventory
from hands.blobs import Blobs
from hands.builtin.process import ProcessType
from hands.inside import tree
from hands.isolation import probe
from hands.journal import Journal
from hands.life import keeper, remains
from tests.hands.place import PATIENCE, Place, let_go, open_place, until
from tests.pace import AT_ONCE, SCALE

_NO_SANDBOX = probe.problem()


def whole(steps: list[pb.ExecuteResponse]) -> tuple[bytes, pb.Result]:
    return b"".join(each.output.data for each in steps), steps[-1].result


class Resisting(ProcessType):
    """Hands of which something cannot be killed; their processes can, here."""

    def __init__(self) -> None:
        super().__init__(sandbox="off")
        self.resists = True

    async def reap(self, hand_id: str, folder: Path) -> int:
        killed = await super().reap(hand_id, folder)
        if self.resists:
            raise OSError(16, "Device or resource busy")
        return killed


class Away(Blobs):
    """Blobs whose link is away, until it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.there = asyncio.Event(), asyncio.Event()
        self.taken: list[bytes] = []

    async def write(self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo) -> None:
        self.asked.set()
        await self.there.wait()
        self.taken.append(file.read())


def provision(place: Place, hand_id: str, **more: object) -> pb.ProvisionRequest:
    given = {"driver": place.driver(), "type": "process"} | more
    return pb.ProvisionRequest(hand_id=hand_id, **given)  # type: ignore[arg-type]


async def refused(place: Place, request: pb.ProvisionRequest) -> Reason:
    with pytest.raises(CarpalError) as caught:
        await place.provision(request)
    return caught.value.reason


def state_of(place: Place, hand_id: str) -> str:
    row = place.journal.hand(hand_id)
    return row.state if row else ""


async def test_a_lost_hand_of_which_something_resists_ends_no_daemon_and_is_not_said_to_be_dead(
    tmp_path: Path,
) -> None:
    kind = Resisting()
    async with open_place(tmp_path / "s", process=kind) as place:
        hand, other = await place.hand(), await place.hand()
        call = place.begin(place.request(hand, command="echo up; sleep 60"))
        await call.output()
        os.kill(place.supervisor(hand), signal.SIGKILL)
        result = await call.result()
        assert result.outcome == pb.OUTCOME_LOST
        assert "may still run" in result.content
        assert (await place.sh(other, "echo on")).content == "on\n"
        with pytest.raises(CarpalError, match="busy"):
            await place.release(hand)
        assert state_of(place, hand) == "lost"
        kind.resists = False
        assert await place.release(hand)
        assert state_of(place, hand) == "released"


class Slow(ProcessType):
    """Hands that are killed no sooner than the test says, also when that is cancelled."""

    def __init__(self) -> None:
        super().__init__(sandbox="off")
        self.asked, self.go, self.killed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def reap(self, hand_id: str, folder: Path) -> int:
        self.asked.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                continue
        killed = await super().reap(hand_id, folder)
        self.killed.set()
        return killed


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """Its hands, which nobody waits long for; killed at the end, also when the test fails."""
    monkeypatch.setattr(remains, "_KILL_LIMIT", 0.2)
    monkeypatch.setattr(remains, "_CLOSE_LIMIT", 0.05)
    monkeypatch.setattr(inventory, "_END_LIMIT", 0.05)
    monkeypatch.setattr(keeper, "_REAP_LIMIT", 0.05)
    kind = Slow()
    yield kind
    kind.go.set()


@asynccontextmanager
async def ended_in_time(state: Path, slow: Slow) -> AsyncIterator[Place]:
    """A service whose end takes no longer than it may, whatever becomes of its hands."""
    try:
        async with asyncio.timeout(None) as limit:
            async with open_place(state, process=slow, end=False) as place:
                try:
                    yield place
                finally:
                    limit.reschedule(asyncio.get_running_loop().time() + AT_ONCE)
    finally:
        slow.go.set()
        for folder in (state / "hands").iterdir():
            tree.kill_marked(mark(folder))


async def test_a_lost_hand_that_is_slow_to_kill_is_killed_all_the_same_after_that_was_told(
    tmp_path: Path, slow: Slow
) -> None:
    kind = slow
    async with ended_in_time(tmp_path / "s", kind) as place:
        hand = await place.hand()
        call = place.begin(place.request(hand, command="sleep 61 & echo $!; wait"))
        outlives = int(await call.output())
        os.kill(place.supervisor(hand), signal.SIGKILL)
        result = await call.result()
        assert result.outcome == pb.OUTCOME_LOST
        assert "may still run" in result.content
        kind.go.set()
        async with asyncio.timeout(PATIENCE):
            await kind.killed.wait()
        assert not tree.find(outlives)


async def test_a_daemon_ends_while_what_a_lost_hand_left_is_never_dead(
    tmp_path: Path, slow: Slow
) -> None:
    async with ended_in_time(tmp_path / "s", slow) as place:
        hand = await place.hand()
        os.kill(place.supervisor(hand), signal.SIGKILL)
        await slow.asked.wait()


async def test_a_daemon_ends_while_a_release_waits_for_what_is_never_dead(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remains, "_KILL_LIMIT", 3600.0)
    async with ended_in_time(tmp_path / "s", slow) as place:
        hand = await place.hand()
        releasing = asyncio.create_task(place.release(hand))
        await slow.asked.wait()
        assert not releasing.done()
    await asyncio.wait({releasing})


async def test_a_hand_that_is_never_dead_keeps_no_daemon_from_starting_and_is_not_said_to_be_dead(
    tmp_path: Path, slow: Slow
) -> None:
    async with open_place(tmp_path / "s", process=slow, end=False) as place:
        hand = await place.hand()
        os.kill(place.supervisor(hand), signal.SIGKILL)
    async with ended_in_time(tmp_path / "s", slow) as place:
        row = place.journal.hand(hand)
        assert row is not None
        assert row.state == "lost"
        assert "may still run" in row.reason


async def test_a_release_of_what_does_not_die_says_so_in_time_and_may_be_asked_again(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ended_in_time(tmp_path / "s", slow) as place:
        hand = await place.hand()
        for _ in range(2):
            with pytest.raises(CarpalError, match="may still run"):
                await place.release(hand)
        monkeypatch.setattr(remains, "_KILL_LIMIT", PATIENCE)
        slow.go.set()
        assert await place.release(hand)
        assert state_of(place, hand) == "released"


async def test_a_hand_of_which_something_resists_keeps_no_daemon_from_starting(
    tmp_path: Path,
) -> None:
    kind = Resisting()
    async with open_place(tmp_path / "s", process=kind, end=False) as place:
        hand, half = await place.hand(), await place.hand()
        request = place.request(hand, command="echo up; sleep 60")
        call = place.begin(request)
        await call.output()
        await call.leave()
        row = place.journal.hand(half)
        assert row is not None
        place.journal.not_provisioned(half)
        place.journal.provisioning(row, "s")
        os.kill(place.supervisor(hand), signal.SIGKILL)
    (tmp_path / "s/hands/unowned").mkdir()
    async with open_place(tmp_path / "s", process=kind, end=False) as place:
        result = (await place.steps(request))[-1].result
        assert result.outcome in (pb.OUTCOME_INTERRUPTED, pb.OUTCOME_LOST)
        assert "may still run" in result.content
        assert state_of(place, hand) == state_of(place, half) == "lost"
        assert await refused(place, provision(place, half)) is Reason.HAND_GONE
        assert (tmp_path / "s/hands/unowned").exists()
    kind.resists = False
    async with open_place(tmp_path / "s", process=kind) as place:
        assert not (tmp_path / "s/hands/unowned").exists()
        for each in (hand, half):
            assert await place.release(each)
            assert not place.inventory.folder_of(each).exists()


async def test_a_hand_that_was_not_made_and_of_which_something_resists_is_there_to_be_released(
    tmp_path: Path,
) -> None:
    kind = Resisting()
    async with open_place(tmp_path / "s", process=kind) as place:
        request = provision(place, "h", limits=pb.Limits(cpus=1.0))
        assert await refused(place, request) is Reason.LIMIT_NOT_ENFORCEABLE
        assert state_of(place, "h") == "lost"
        assert await refused(place, request) is Reason.HAND_GONE
        assert await place.hand()
        assert place.inventory.count == 1
        kind.resists = False
        assert await place.release("h")


class Forgetful(ProcessType):
    """Hands whose folder has nothing to be read once they are reaped."""

    async def reap(self, hand_id: str, folder: Path) -> int:
        killed = await super().reap(hand_id, folder)
        (folder / "results").unlink(missing_ok=True)
        return killed


async def test_results_that_nobody_took_are_read_before_the_hand_is_reaped(
    tmp_path: Path,
) -> None:
    kind = Forgetful(sandbox="off")
    async with open_place(tmp_path / "s", process=kind, end=False) as place:
        hand = await place.hand(deadline=2.0 * SCALE)
        folder = place.inventory.folder_of(hand)
        os.mkfifo(folder / "workspace/go")
        request = place.request(hand, command="echo up; read x < go; echo true")
        call = place.begin(request)
        await call.output()
        await call.leave()
    await let_go(folder / "workspace/go")
    await until((folder / "results").exists, "nothing was left")
    async with open_place(tmp_path / "s", process=kind) as place:
        assert (await place.steps(request))[-1].result.content == "up\ntrue\n"
        assert not (folder / "results").exists()


@pytest.mark.skipif(os.geteuid() != 0 or bool(_NO_SANDBOX), reason="needs root and a sandbox")
async def test_a_lost_hands_disk_is_there_until_it_is_released(tmp_path: Path) -> None:
    kind = ProcessType(sandbox="required")
    async with open_place(tmp_path / "s", process=kind) as place:
        hand = await place.hand(limits={"disk_bytes": 8 << 20})
        request = place.request(hand, command="seq 30000")
        first = whole(await place.steps(request))
        os.kill(place.supervisor(hand), signal.SIGKILL)
        await until(lambda: place.inventory.count == 0, "it is not lost")
        assert whole(await place.steps(request)) == first, "its spool is there"
        assert await place.release(hand)
        assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


async def keeping(place: Place, blobs: Away) -> tuple[str, pb.ExecuteRequest]:
    """A hand, and a call on it that ended, and whose contents are on their way."""
    hand = await place.hand(keep_files=True)
    await place.sh(hand, "true")
    request = place.request(hand, command="echo content > a; echo done")
    place.service.execute(request)
    async with asyncio.timeout(PATIENCE):
        await blobs.asked.wait()
    return hand, request


async def test_a_hand_lost_while_contents_are_on_their_way_is_lost_in_time_and_its_result_true(
    tmp_path: Path,
) -> None:
    async with open_place(tmp_path / "s", blobs=(blobs := Away())) as place:
        hand, request = await keeping(place, blobs)
        waiting = place.begin(place.request(hand, command="true"))
        await asyncio.sleep(0)
        begun = asyncio.get_running_loop().time()
        os.kill(place.supervisor(hand), signal.SIGKILL)
        result = (await place.steps(request))[-1].result
        assert (result.outcome, result.content) == (pb.OUTCOME_OK, "done\n")
        assert [each.kept for each in result.files] == [False]
        lost = await waiting.result()
        assert "did not start" in lost.content
        assert asyncio.get_running_loop().time() - begun < 2.0 * SCALE


async def test_a_hand_released_while_contents_are_on_their_way_has_a_true_result(
    tmp_path: Path,
) -> None:
    async with open_place(tmp_path / "s", blobs=(blobs := Away())) as place:
        hand, request = await keeping(place, blobs)
        running = place.service.execute(request)
        assert await place.release(hand)
        assert running.result is not None
        assert (running.result.outcome, running.result.content) == (pb.OUTCOME_OK, "done\n")


async def test_contents_stored_by_a_daemon_that_then_died_are_not_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **_more: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    blobs, asked = Away(), []

    async def die(broken: pytest.MonkeyPatch) -> None:
        async with open_place(tmp_path / "s", end=False, blobs=blobs) as place:
            asked.append((await keeping(place, blobs))[1])
            broken.setattr(Journal, "terminal", full)
            blobs.there.set()
            await place.steps(asked[0])

    with monkeypatch.context() as broken, pytest.raises(BaseExceptionGroup):
        await die(broken)
    assert blobs.taken == [b"content\n"]
    async with open_place(tmp_path / "s", blobs=blobs) as place:
        result = (await place.steps(asked[0]))[-1].result
        assert [(each.path, each.kept) for each in result.files] == [("a", True)]
        kept = place.inventory.folder_of(asked[0].hand_id) / "kept"
        await until(lambda: not list(kept.iterdir()), "what was journaled is still kept")


async def test_hands_of_a_type_the_daemon_no_longer_has_are_dead_before_their_calls_are_settled(
    tmp_path: Path,
) -> None:
    other = ProcessType(sandbox="off")
    async with open_place(tmp_path / "s", more={"other": other}, end=False) as place:
        hand = await place.hand(type="other")
        request = place.request(hand, command="echo up; sleep 60")
        call = place.begin(request)
        await call.output()
        await call.leave()
        pid = place.supervisor(hand)
        below = tree.descendants(pid)
        assert below
    async with open_place(tmp_path / "s") as place:
        assert not [each for each in below if tree.alive(each.pid, each.start)]
        result = (await place.steps(request))[-1].result
        assert result.outcome == pb.OUTCOME_INTERRUPTED
        assert await place.release(hand)
