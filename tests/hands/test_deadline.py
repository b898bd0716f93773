"""L13: lease TTL passes with no contact → the hand self-fences by a clock that counts sleep
before the brain may reassign."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from brain.daemons.fleet import ORPHAN_MARGIN
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.process import ProcessType
from hands.builtin.supervised import Pulse
from hands.inside import tree
from hands.inside.deadline import Deadline, boottime
from tests.hands.place import Place, let_go, open_place, until
from tests.leftovers import nothing_orphaned
from tests.pace import AT_ONCE, SCALE


class Clock:
    """Stands still until moved, as the machine's does for nobody."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_deadline_is_over_after_that_long_without_contact_and_stays_over() -> None:
    clock = Clock()
    deadline = Deadline(60.0, clock)
    clock.now += 50
    assert (deadline.left, deadline.quiet, deadline.over) == (10.0, 50.0, False)
    deadline.contact()
    clock.now += 60
    assert (deadline.left, deadline.over) == (0.0, False)
    clock.now += 0.1
    assert deadline.over
    deadline.contact()
    assert deadline.over, "contact after it comes too late"
    assert deadline.left == 0.0


def test_an_adopted_hands_deadline_goes_on_where_it_was() -> None:
    clock = Clock()
    deadline = Deadline(60.0, clock)
    deadline.contact(ago=45.0)
    assert deadline.left == 15.0


def test_the_clock_counts_the_machines_sleep() -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert now <= boottime() < now + 60
    assert Deadline.__init__.__defaults__ == (boottime,)


def test_a_brain_gives_a_hand_up_only_a_margin_after_the_hand_ended_itself() -> None:
    # Of the looks at the deadline, of a sweep, and of a heartbeat on its way.
    look, sweep, silence = 2.0, 5.0, 15.0
    assert look + sweep + silence <= ORPHAN_MARGIN


async def test_l13_a_hand_that_slept_past_its_deadline_ends_before_it_obeys_anything(
    place: Place,
) -> None:
    """A stopped supervisor is one that sleeps: its loop stands still while time passes."""
    hand = await place.hand(deadline=1.0 * SCALE)
    call = place.begin(place.request(hand, command="setsid sleep 60 & echo up; sleep 61"))
    await call.output()
    supervisor = place.supervisor(hand)
    below = tree.descendants(supervisor)
    os.kill(supervisor, signal.SIGSTOP)
    slept = boottime()
    await until(lambda: boottime() > slept + 1.1 * SCALE, "time stands still")
    await place.inventory.contact()  # a brain is back, and heard at once on waking
    os.kill(supervisor, signal.SIGCONT)
    result = await call.result()
    assert "orphan deadline" in result.content
    assert not [p for p in below if tree.alive(p.pid, p.start)]


async def test_l13_a_hand_whose_daemon_is_gone_for_ever_ends_itself_and_its_whole_tree(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    async with open_place(state, end=False) as place:
        hand = await place.hand(deadline=1.0 * SCALE)
        call = place.begin(place.request(hand, command="setsid sleep 60 & echo up; sleep 61"))
        await call.output()
        supervisor = place.supervisor(hand)
        all_of_it = [tree.find(supervisor), *tree.descendants(supervisor)]
        await call.leave()
    await until(
        lambda: not [p for p in all_of_it if p and tree.alive(p.pid, p.start)],
        "it goes on without a daemon",
    )
    assert not (state / "hands" / hand / "socket").exists()
    await nothing_orphaned(state)


async def test_a_daemon_that_comes_back_does_not_start_the_deadline_over(tmp_path: Path) -> None:
    """Only a brain does: a daemon that restarts for ever would keep its hands for ever."""
    state = tmp_path / "state"
    async with open_place(state, end=False) as place:
        hand = await place.hand(deadline=60.0)
    began = boottime()
    await until(lambda: boottime() > began + 0.2, "time stands still")
    async with open_place(state) as place:
        assert place.inventory.keepers[hand].orphan_in <= 59.9


async def test_calls_and_a_daemon_that_looks_after_it_keep_no_hand_without_a_brain(
    tmp_path: Path,
) -> None:
    often = ProcessType(Pulse(every=0.05), sandbox="off")
    async with open_place(tmp_path / "state", process=often) as place:
        hand = await place.hand(deadline=1.0 * SCALE)
        while hand in place.inventory.keepers:
            try:
                await place.steps(place.request(hand, command="true"))
            except CarpalError as error:
                if error.reason is not Reason.HAND_GONE:
                    raise
        (info,) = (await place.service.list_hands(pb.ListHandsRequest())).hands
        assert "orphan deadline" in info.reason


async def test_what_ended_before_the_deadline_is_told_truly_by_a_daemon_that_comes_back(
    tmp_path: Path,
) -> None:
    """The supervisor ended itself with a result nobody took; it wrote it down."""
    state = tmp_path / "state"
    async with open_place(state, end=False) as place:
        hand = await place.hand(deadline=1.0 * SCALE)
        request = place.request(hand, command="echo up; read x < go; echo done")
        os.mkfifo(place.inventory.folder_of(hand) / "workspace/go")
        call = place.begin(request)
        await call.output()
        supervisor = place.supervisor(hand)
        start = tree.start_time(supervisor)
        await call.leave()
    await let_go(state / "hands" / hand / "workspace/go")
    await until(lambda: not tree.alive(supervisor, start), "it goes on without a daemon")
    async with open_place(state) as place:
        result = (await place.steps(request))[-1].result
        assert (result.outcome, result.content) == (pb.OUTCOME_OK, "up\ndone\n")
        (info,) = (await place.service.list_hands(pb.ListHandsRequest())).hands
        assert info.lost
        assert list(info.unacknowledged_call_ids) == [request.call_id]


@pytest.mark.parametrize(
    "planted", ["mkfifo ../results", "echo no json > ../results", "ln -s /dev/zero ../results"]
)
async def test_what_a_command_puts_in_place_of_the_results_is_no_result_and_holds_up_nobody(
    tmp_path: Path, planted: str
) -> None:
    state = tmp_path / "state"
    async with open_place(state, end=False) as place:
        hand = await place.hand()
        request = place.request(hand, command=f"{planted}; mkdir ../results.new; echo up; sleep 60")
        call = place.begin(request)
        await call.output()
        supervisor = tree.find(place.supervisor(hand))
        assert supervisor is not None
        await call.leave()
    tree.send(supervisor, signal.SIGTERM)
    await until(lambda: not tree.alive(supervisor.pid, supervisor.start), "it does not end")
    async with open_place(state) as place:
        async with asyncio.timeout(AT_ONCE):
            result = (await place.steps(request))[-1].result
        assert result.outcome == pb.OUTCOME_INTERRUPTED
        assert await place.release(hand)
