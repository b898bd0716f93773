"""A daemon that dies and comes back: hands are adopted with their calls, or settled truthfully."""

import asyncio
import json
import os
import select
import signal
import sqlite3
import struct
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.status import Reason
from carpal.v1 import hand_pb2 as hand_pb
from carpal.v1 import orchestrator_pb2 as pb
from hands.inside import tree
from hands.journal import Journal
from tests.faults import Points
from tests.hands.place import PATIENCE, Place, let_go, open_place, until
from tests.hands.test_service import refused
from tests.pace import AT_ONCE, SCALE

REPOSITORY = Path(__file__).parents[2]


class Child:
    """A daemon in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._requests = 0
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    def ask(self, **call: object) -> int:
        """Send a request; gives its number."""
        self._requests += 1
        request = pb.Request(request_id=self._requests, **call)  # type: ignore[arg-type]
        data = request.SerializeToString()
        self._in.write(struct.pack(">I", len(data)) + data)
        return self._requests

    async def reply(self) -> pb.Reply:
        """The next reply to anything."""
        async with asyncio.timeout(PATIENCE):
            (size,) = struct.unpack(">I", await self._out.readexactly(4))
            return pb.Reply.FromString(await self._out.readexactly(size))

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        await self._process.wait()
        self._in.close()


@asynccontextmanager
async def child(state: Path, more: Mapping[str, str] | None = None) -> AsyncIterator[Child]:
    """A daemon in a process of its own, ready; killed at the end if it was not before.

    `more` is what it has in its environment besides.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.hands.daemon_child", str(state)),
        cwd=REPOSITORY,
        env={**os.environ, **(more or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            await process.stdout.readexactly(4)
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A daemon's state folder."""
    return tmp_path / "state"


DRIVER = hand_pb.Driver(session_id="s", epoch=1, workspace="default")


def _bash(call_id: str, command: str) -> hand_pb.ExecuteRequest:
    return hand_pb.ExecuteRequest(
        driver=DRIVER,
        hand_id="h",
        call_id=call_id,
        name="bash",
        input=json.dumps({"command": command}).encode(),
    )


async def _die_in_a_call(state: Path, command: str) -> hand_pb.ExecuteRequest:
    """SIGKILL a daemon once a call of its hand `h` has said `up`; gives the call."""
    request = _bash("c", command)
    async with child(state) as daemon:
        daemon.ask(provision=hand_pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="process"))
        while not (await daemon.reply()).last:
            pass
        daemon.ask(execute=request)
        assert (await daemon.reply()).execute.output.data == b"up\n"
        await daemon.kill()
    return request


WAITS = "mkfifo go; echo up; read x < go; echo ran >> log; cat log; cd /; export A=1; (exit 3)"
"""Says `up`, waits to be let go, leaves a trace, and carries something over."""


async def _state_of(place: Place, *call_ids: str) -> list[hand_pb.CallInfo]:
    claim = hand_pb.ClaimRequest(driver=place.driver(epoch=2), hand_id="h", call_ids=call_ids)
    return list((await place.service.claim(claim)).calls)


async def test_a_killed_daemons_call_goes_on_and_its_true_result_arrives_once_l15_h44(
    state: Path,
) -> None:
    request = await _die_in_a_call(state, WAITS)
    async with open_place(state) as place:
        running, never = await _state_of(place, "c", "never")
        assert running.state == hand_pb.CALL_STATE_RUNNING
        assert never.state == hand_pb.CALL_STATE_UNKNOWN
        request.driver.epoch = 2
        call = place.begin(request)
        assert await call.output() == b"up\n"
        await let_go(state / "hands/h/workspace/go")
        result = await call.result()
        assert (result.outcome, result.exit_code) == (hand_pb.OUTCOME_ERROR, 3)
        assert result.content == "up\nran\n[exit code 3]"
        again = await place.steps(request)
        assert b"".join(step.output.data for step in again[:-1]) == b"up\nran\n"
        assert again[-1].result == result
        # The hand is adopted with its state.
        after = place.request("h", command="pwd; echo $A")
        after.driver.epoch = 2
        assert (await place.steps(after))[-1].result.content == "/\n1\n"


async def test_a_call_that_ended_while_no_daemon_lived_has_its_true_result_l15(
    state: Path,
) -> None:
    request = await _die_in_a_call(state, WAITS)
    workspace = state / "hands/h/workspace"
    await let_go(workspace / "go")
    await until((workspace / "log").exists, "the call did not go on")
    for _ in range(2):
        async with open_place(state, end=False) as place:
            result = (await place.steps(request))[-1].result
            assert result.content == "up\nran\n[exit code 3]"
    async with open_place(state) as place:
        assert (await place.sh("h", "cat $OLDPWD/log")).content == "ran\n"


@pytest.mark.parametrize("step", ["before_accepted", "accepted"])
async def test_a_call_in_line_behind_another_when_the_daemon_dies_was_never_accepted_l12(
    state: Path, tmp_path: Path, step: str
) -> None:
    points = Points(tmp_path / "points")
    point = f"daemon.call.{step}"
    waits = _bash("waits", "echo waited >> log; cat log")
    async with child(state, points.environ) as daemon:
        daemon.ask(provision=hand_pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="process"))
        while not (await daemon.reply()).last:
            pass
        daemon.ask(execute=_bash("runs", "mkfifo go; echo up; read x < go; echo ran >> log"))
        assert (await daemon.reply()).execute.output.data == b"up\n"
        points.arm(point, "kill")
        daemon.ask(execute=waits)
        await points.reached(point, PATIENCE)
    async with open_place(state) as place:
        (info,) = await _state_of(place, "waits")
        assert info.state == hand_pb.CALL_STATE_UNKNOWN
        waits.driver.epoch = 2
        call = place.begin(waits)
        await let_go(state / "hands/h/workspace/go")
        assert (await call.result()).content == "ran\nwaited\n"


async def test_however_the_daemon_dies_a_side_effect_happens_once_and_is_told_truly_l15(
    state: Path,
) -> None:
    async with child(state) as daemon:
        daemon.ask(provision=hand_pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="process"))
        while not (await daemon.reply()).last:
            pass
        await daemon.kill()
    for round_, delay in enumerate((0.0, 0.002, 0.005, 0.01, 0.02, 0.05)):
        request = _bash(f"c{round_}", f"echo {round_} >> log; sleep 0.01; grep -c {round_} log")
        async with child(state) as daemon:
            daemon.ask(execute=request)
            await asyncio.sleep(delay)  # the moment of death, not a wait
            await daemon.kill()
        async with child(state) as daemon:
            for _ in range(2):
                daemon.ask(execute=request)
                while not (reply := await daemon.reply()).last:
                    pass
                result = reply.execute.result
                log = (state / "hands/h/workspace/log").read_text().split()
                if result.outcome == hand_pb.OUTCOME_OK:
                    assert (result.content, log.count(str(round_))) == ("1\n", 1)
                else:
                    assert result.outcome == hand_pb.OUTCOME_INTERRUPTED
                    assert log.count(str(round_)) <= 1
            await daemon.kill()
    async with open_place(state):
        pass


async def test_a_call_whose_supervisor_died_with_the_daemon_is_interrupted_and_dead_l15(
    state: Path,
) -> None:
    request = await _die_in_a_call(state, "setsid sleep 60 & echo up; sleep 61")
    journal = Journal(state / "journal.db")
    row = journal.hand("h")
    journal.close()
    assert row is not None
    tree_before = tree.descendants(row.facts["pid"])
    assert len(tree_before) >= 3
    watched = [os.pidfd_open(process.pid) for process in tree_before]
    os.kill(row.facts["pid"], signal.SIGKILL)
    async with open_place(state) as place:
        for pidfd in watched:
            # Killed by now; the kernel may still be at it.
            ended, _, _ = select.select([pidfd], [], [], AT_ONCE)
            assert ended
            os.close(pidfd)
        result = (await place.steps(request))[-1].result
        assert result.outcome == hand_pb.OUTCOME_INTERRUPTED
        assert "may have partly happened" in result.content
        error = await refused(place.execute(place.request("h", command="true")))
        assert error.reason == Reason.HAND_GONE
        assert await place.release("h")
        assert not (state / "hands/h").exists()


async def test_after_a_reboot_every_hand_is_lost_and_its_calls_are_interrupted_l15(
    state: Path,
) -> None:
    request = await _die_in_a_call(state, "echo up; sleep 60")
    async with open_place(state, boot_id="another boot") as place:
        assert (await place.steps(request))[-1].result.outcome == hand_pb.OUTCOME_INTERRUPTED
        (info,) = (await place.service.list_hands(hand_pb.ListHandsRequest())).hands
        assert info.lost
        assert info.reason == "the machine restarted"


@pytest.mark.parametrize(
    ("written", "expected"),
    [("accepted", hand_pb.CALL_STATE_UNKNOWN), ("starting", hand_pb.CALL_STATE_TERMINAL)],
)
async def test_a_call_the_hand_was_not_told_of_was_never_accepted_unless_it_was_starting_l12(
    state: Path, written: str, expected: int
) -> None:
    async with open_place(state, end=False) as place:
        await place.provision(hand_pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="process"))
        place.journal.accepted("h", "c", b"digest")
        if written == "starting":
            place.journal.starting("h", "c")
    async with open_place(state) as place:
        (info,) = await _state_of(place, "c")
        assert info.state == expected
        if written == "starting":
            assert info.outcome == hand_pb.OUTCOME_INTERRUPTED
        assert (await place.service.list_hands(hand_pb.ListHandsRequest())).hands[0].hand_id == "h"


async def test_a_daemon_that_stops_in_good_order_leaves_its_calls_running(state: Path) -> None:
    async with open_place(state, end=False) as place:
        await place.provision(hand_pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="process"))
        request = place.request("h", command=WAITS)
        call = place.begin(request)
        await call.output()
        await call.leave()
    async with open_place(state) as place:
        call = place.begin(request)
        await let_go(state / "hands/h/workspace/go")
        assert "ran" in (await call.result()).content


async def test_what_no_row_owns_is_killed_and_removed(state: Path) -> None:
    async with open_place(state, end=False) as place:
        hand = await place.hand()
        other = await place.hand()
        supervisor = place.supervisor(hand)
        start = tree.start_time(supervisor)
    (state / "journal.db").unlink()
    for name in ("journal.db-wal", "journal.db-shm"):
        (state / name).unlink(missing_ok=True)
    async with open_place(state) as place:
        assert not tree.alive(supervisor, start)
        assert not (state / "hands" / hand).exists()
        assert not (state / "hands" / other).exists()


async def test_a_hand_half_made_is_removed_and_its_id_may_be_tried_again(state: Path) -> None:
    async with open_place(state, end=False) as place:
        await place.hand()
        (row,) = place.journal.hands()
        place.journal.not_provisioned(row.hand_id)
        place.journal.provisioning(row, "s")
        pid = tree.find(int(row.facts["pid"]))
    async with open_place(state) as place:
        assert pid is not None
        assert not tree.alive(pid.pid, pid.start)
        assert not (state / "hands" / row.hand_id).exists()
        await place.provision(
            hand_pb.ProvisionRequest(driver=DRIVER, hand_id=row.hand_id, type="process")
        )


async def test_a_killed_supervisor_settles_its_calls_as_lost_within_two_seconds_h46(
    place: Place, hand: str
) -> None:
    running = place.begin(
        place.request(hand, command="setsid sleep 60 & (nohup sleep 61 &) ; echo up; sleep 62")
    )
    await running.output()
    waiting = place.begin(place.request(hand, command="true"))
    await asyncio.sleep(0)
    pid = place.supervisor(hand)
    below = tree.descendants(pid)
    begun = asyncio.get_running_loop().time()
    os.kill(pid, signal.SIGKILL)
    for call, words in ((running, "partly happened"), (waiting, "did not start")):
        result = await call.result()
        assert result.outcome == hand_pb.OUTCOME_LOST
        assert words in result.content
    assert asyncio.get_running_loop().time() - begun < 2.0 * SCALE
    assert not [p for p in below if tree.alive(p.pid, p.start)]
    await until(lambda: place.inventory.count == 0, "the hand is still there")
    error = await refused(place.execute(place.request(hand, command="true")))
    assert error.reason == Reason.HAND_GONE
    assert (await place.service.list_hands(hand_pb.ListHandsRequest())).hands[0].lost
    assert (await running.result()).outcome == hand_pb.OUTCOME_LOST
    assert await place.release(hand)


async def test_a_hand_without_contact_ends_itself_and_all_it_started_l13(place: Place) -> None:
    lonely = await place.hand(deadline=1.0 * SCALE)
    kept = await place.hand(deadline=3.0 * SCALE)
    call = place.begin(place.request(lonely, command="setsid sleep 60 & echo up; sleep 61"))
    await call.output()
    below = tree.descendants(place.supervisor(lonely))
    await place.inventory.keepers[kept].contact()
    result = await call.result()
    assert result.outcome == hand_pb.OUTCOME_LOST
    assert "orphan deadline" in result.content
    assert not [p for p in below if tree.alive(p.pid, p.start)]
    assert (await place.sh(kept, "echo on")).content == "on\n"


async def test_contact_starts_the_orphan_deadline_over_l13(place: Place) -> None:
    hand = await place.hand(deadline=1.5 * SCALE)
    for _ in range(4):
        await place.inventory.contact()
        assert (await place.sh(hand, f"sleep {0.6 * SCALE}; echo on")).content == "on\n"
    assert place.inventory.keepers[hand].orphan_in > 0


async def test_what_cannot_be_removed_keeps_no_daemon_from_starting(state: Path) -> None:
    stray = state / "hands/stray"
    stray.parent.mkdir(parents=True)
    stray.write_text("a file where only folders are expected")
    async with open_place(state) as place:
        assert await place.hand()


async def test_a_journal_that_fails_ends_the_daemon_and_not_the_truth_of_a_call(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    calls = []

    async def fail_in_a_call(broken: pytest.MonkeyPatch) -> None:
        async with open_place(state, end=False) as place:
            calls.append(place.request(await place.hand(), command="echo ran >> log; cat log"))
            broken.setattr(Journal, "running", full)
            await place.steps(calls[0])

    with monkeypatch.context() as broken, pytest.raises(BaseExceptionGroup):
        await fail_in_a_call(broken)
    async with open_place(state) as place:
        assert (await place.steps(calls[0]))[-1].result.content == "ran\n"
