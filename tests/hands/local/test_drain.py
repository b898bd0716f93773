"""`carpal hand drain`: no new hands, with a link and without; it says what it waits for."""

import asyncio
import subprocess
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.local.waiting import named, wait_for_none
from tests.hands.fake_brain import Asked, FakeBrain
from tests.hands.local.test_status import until
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.hands.test_cli import carpal


async def drain(machine: Machine, *more: str) -> subprocess.CompletedProcess[str]:
    """The command, as a person gives it."""
    return await asyncio.to_thread(carpal, "drain", *more, "--state-dir", str(machine.state))


async def test_a_drained_daemon_takes_no_new_hand_and_those_it_has_go_on_through_a_restart(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        ran = await drain(machine, "--reason", "new disk")
        assert ran.returncode == 0, ran.stderr
        assert "drained: no new hands are taken" in ran.stdout
        assert "1 left: h (process of s, idle); wait for the end with --wait" in ran.stdout
        with pytest.raises(CarpalError, match="draining") as refused:
            await asked.provision("other")
        assert refused.value.reason is Reason.AT_CAPACITY
        *_, last = [reply async for reply in asked.execute("h", "c", "echo goes on")]
        assert "goes on" in last.execute.result.content
    async with machine.daemon():
        assert (await until(machine, state="linked"))["draining"] is True
        ran = await drain(machine, "--lift")
        assert ran.stdout == "new hands are taken again\n"
        assert (await until(machine, draining=False))["hands"] == 1


async def test_it_is_the_drain_of_an_operator_and_either_lifts_it(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await drain(machine)
        lifted = await asked.ask(drain_hands=pb.DrainHandsRequest(lift=True))
        assert not lifted.drain_hands.capacity.draining
        await asked.provision("h")
        await asked.ask(drain_hands=pb.DrainHandsRequest(reason="new disk"))
        await until(machine, draining=True)
        assert (await drain(machine, "--lift")).returncode == 0
        await asked.provision("h2")


async def test_wait_ends_when_the_last_hand_does_and_says_which_one_it_waits_for(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        asked = await one.link()
        await asked.provision("h")
        draining = asyncio.create_task(drain(machine, "--wait"))
        await until(machine, draining=True)
        await asked.ask(release=_release(asked, "h"))
        async with asyncio.timeout(PATIENCE):
            ran = await draining
    assert ran.returncode == 0, ran.stderr
    assert "no hand is left" in ran.stdout


async def test_without_a_link_it_drains_too_and_a_time_that_is_over_is_an_exit_code(
    machine: Machine, one: FakeBrain
) -> None:
    async with machine.daemon():
        await (await one.link()).provision("h")
    machine.dials("127.0.0.1:1")
    async with machine.daemon():
        await until(machine, state="not linked", hands=1)
        ran = await drain(machine, "--wait", "--timeout", "1s")
    assert ran.returncode == 1
    assert "1 left: h (process of s, idle)" in ran.stdout
    assert "the time is over and 1 left: h" in ran.stderr
    assert "or `carpal hand stop HAND_ID`" in ran.stderr


def test_each_change_is_said_once() -> None:
    row: dict[str, Any] = {"hand_id": "h", "type": "process", "sessions": ["s"], "calls": ["c"]}
    idle = {**row, "calls": []}
    looks = iter([[row], [row], [idle], [idle], []])
    assert wait_for_none(lambda: next(looks), 60, sleep=lambda _: None, clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--timeout", "soon"), "--timeout: 'soon' is not a number and s, m or h"),
        (("--wait", "--lift"), "--wait: there is nothing to wait for"),
        ((), "no daemon runs on"),
    ],
)
async def test_bad_input_and_no_daemon_are_one_line(
    arguments: tuple[str, ...], words: str, machine: Machine
) -> None:
    ran = await drain(machine, *arguments)
    assert ran.returncode in (2, 3)
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def _release(asked: Asked, hand_id: str) -> hand_pb2.ReleaseRequest:
    return hand_pb2.ReleaseRequest(driver=asked.driver, hand_id=hand_id)


@pytest.mark.parametrize(
    ("calls", "doing"),
    [([], "idle"), (["c1"], "1 call runs or waits"), (["c1", "c2"], "2 calls run or wait")],
)
def test_what_a_hand_is_at_is_said_of_one_call_as_of_several(calls: list[str], doing: str) -> None:
    row = {"hand_id": "h", "type": "process", "sessions": ["s"], "calls": calls}
    assert named(row) == f"h (process of s, {doing})"
