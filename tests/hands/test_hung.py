"""A supervisor that is stopped or hangs: noticed in bounded time, its tree killed, all said."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.process import ProcessType
from hands.builtin.supervised import PULSE, Pulse
from hands.inside import tree
from tests.faults import Points
from tests.hands.place import Place, open_place, until
from tests.hands.test_service import refused
from tests.leftovers import nothing_orphaned
from tests.pace import SCALE

QUICK = Pulse(every=0.1, limit=1.5 * SCALE)


def test_a_supervisor_that_hangs_is_noticed_within_45_seconds() -> None:
    assert PULSE.every + PULSE.limit * PULSE.tries <= 45


async def test_a_supervisor_stopped_in_a_call_is_noticed_and_its_whole_tree_killed(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    async with open_place(state, process=ProcessType(QUICK, sandbox="off")) as place:
        hand = await place.hand()
        call = place.begin(place.request(hand, command="setsid sleep 60 & echo up; sleep 61"))
        await call.output()
        waiting = place.begin(place.request(hand, command="touch ran"))
        supervisor = place.supervisor(hand)
        all_of_it = [tree.find(supervisor), *tree.descendants(supervisor)]
        os.kill(supervisor, signal.SIGSTOP)
        result = await call.result()
        assert result.outcome == pb.OUTCOME_LOST
        assert "did not answer" in result.content
        assert "may have partly happened" in result.content
        assert "did not start" in (await waiting.result()).content
        assert not [p for p in all_of_it if p and tree.alive(p.pid, p.start)]
        await until(lambda: place.inventory.count == 0, "the hand is still there")
        assert (
            await refused(place.execute(place.request(hand, command="true")))
        ).reason is Reason.HAND_GONE
        await nothing_orphaned(state)


async def test_a_supervisor_stopped_while_idle_is_noticed_too(tmp_path: Path) -> None:
    async with open_place(tmp_path / "state", process=ProcessType(QUICK, sandbox="off")) as place:
        hand = await place.hand()
        os.kill(place.supervisor(hand), signal.SIGSTOP)
        await until(lambda: place.inventory.count == 0, "nobody noticed")
        (info,) = (await place.service.list_hands(pb.ListHandsRequest())).hands
        assert info.lost
        assert "did not answer" in info.reason


async def test_a_supervisor_that_is_only_slow_is_kept(tmp_path: Path) -> None:
    async with open_place(
        tmp_path / "state", process=ProcessType(Pulse(0.05, 1.0 * SCALE, tries=4), sandbox="off")
    ) as place:
        hand = await place.hand()
        supervisor = place.supervisor(hand)
        os.kill(supervisor, signal.SIGSTOP)
        await asyncio.sleep(1.2 * SCALE)  # the fault itself: longer than one question may take
        os.kill(supervisor, signal.SIGCONT)
        assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_a_stopped_supervisor_is_not_adopted_and_its_tree_is_killed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with open_place(state, end=False) as place:
        hand = await place.hand()
        request = place.request(hand, command="echo up; sleep 61")
        call = place.begin(request)
        await call.output()
        supervisor = place.supervisor(hand)
        all_of_it = [tree.find(supervisor), *tree.descendants(supervisor)]
        await call.leave()
    os.kill(supervisor, signal.SIGSTOP)
    began = time.monotonic()
    async with open_place(state) as place:
        assert time.monotonic() - began < 15 * SCALE
        result = (await place.steps(request))[-1].result
        assert result.outcome == pb.OUTCOME_INTERRUPTED
        assert "may have partly happened" in result.content
        assert not [p for p in all_of_it if p and tree.alive(p.pid, p.start)]
        await nothing_orphaned(state)


async def test_l12_a_child_that_hangs_before_its_job_is_interrupted_in_time_and_never_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L12: the call's root process stands still before it runs the command; the hand goes on."""
    points = Points(tmp_path / "faults")
    for name, value in points.environ.items():
        monkeypatch.setenv(name, value)
    points.arm("supervisor.runner.forked", "stop")
    state = tmp_path / "state"
    async with open_place(
        state, process=ProcessType(start_limit=2.0 * SCALE, sandbox="off")
    ) as place:
        hand = await place.hand()
        request = place.request(hand, command="touch ran")
        result = (await place.steps(request))[-1].result
        assert result.outcome == pb.OUTCOME_INTERRUPTED
        assert "did not start within" in result.content
        assert "may have partly happened" in result.content
        assert (await place.steps(request))[-1].result == result, "it is not tried again"
        assert (await place.sh(hand, "ls; echo on")).content == "on\n"
        await nothing_orphaned(state)


@pytest.mark.parametrize("answers", [False, True])
async def test_a_release_of_a_stopped_hand_kills_it_from_outside(
    place: Place, hand: str, answers: bool
) -> None:
    call = place.begin(place.request(hand, command="echo up; sleep 61"))
    await call.output()
    supervisor = place.supervisor(hand)
    all_of_it = [tree.find(supervisor), *tree.descendants(supervisor)]
    if not answers:
        os.kill(supervisor, signal.SIGSTOP)
    assert await place.release(hand)
    assert not [p for p in all_of_it if p and tree.alive(p.pid, p.start)]
    assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
