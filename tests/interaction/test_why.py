"""A daemon dies and comes back under a call: the session says so, and that all is well after."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from carpal.operator.overview import is_live
from carpal.operator.why_fleet import NOTICED
from carpal.v1 import orchestrator_pb2 as pb
from hands.isolation import cgroups
from tests.command import Command
from tests.interaction.play import HELD, SECONDS, Session, let_go, pipes, session, started
from tests.world import World, world

CANARY = "4711-main-street"


async def told(it: World, carpal: Command, session_id: str) -> dict[str, Any]:
    """What `carpal session why` says."""
    address = it.running["sessiond"].facts["address"]
    where = ("--state-dir", str(it.state), "--sessiond", address)
    ended = await carpal("session", "why", session_id, "--json", *where)
    assert ended.code == 0, ended.stderr
    assert CANARY not in ended.stdout
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


async def until_state(it: World, state: str) -> None:
    """Until the brain says that of the daemon."""
    async with it.orchestrator("b1") as brain, asyncio.timeout(SECONDS):
        while True:
            listed = await brain.ListDaemons(pb.ListDaemonsRequest(), timeout=SECONDS)
            if [each.state for each in listed.daemons] == [state]:
                return
            await asyncio.sleep(0.1)


async def until_driven(made: Session) -> None:
    """Until a brain has its lease: its log says so only with the first request."""
    async with asyncio.timeout(SECONDS):
        while not is_live(await made.lease()):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_link_that_is_down_is_said_and_once_it_is_back_from_when_to_when_it_was(
    tmp_path: Path,
) -> None:
    work, carpal = pipes(tmp_path / "work"), Command(tmp_path)
    async with world(tmp_path / "state") as it, session(it, f"{HELD} # {CANARY}", work) as made:
        await started(work)
        at_work = await told(it, carpal, made.session_id)
        assert {each["kind"] for each in at_work["findings"]} == {"running", "call_open"}
        assert at_work["healthy"]
        await it.running["daemon"].kill()
        await until_state(it, "gone")
        down = await told(it, carpal, made.session_id)
        assert not down["healthy"]
        (link,) = [each for each in down["findings"] if each["kind"] == "link_down"]
        assert link["layer"] == "link"
        assert link["text"].startswith("The link of daemon daemon-1, which has hand shell, is down")
        assert "carpal hand doctor" in down["next"][0]
        # Links are told of in whole seconds, and one that was soon back is passed over.
        told_from = datetime.fromisoformat(link["since"]) + 2 * NOTICED
        await asyncio.sleep(max(0.0, (told_from - datetime.now(UTC)).total_seconds()))
        await it.daemon()
        await let_go(work)
        await made.until_type("session.status_idle")
        after = await told(it, carpal, made.session_id)
        assert after["healthy"], after
        (was,) = [each for each in after["findings"] if each["kind"] == "link_was_down"]
        assert was["since"] < was["until"]
        assert was["text"].startswith("The link of daemon daemon-1 was down from ")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif("memory" not in cgroups.bases(), reason="no control groups for memory")
async def test_a_hand_whose_command_the_kernel_killed_is_said_to_have_been_out_of_memory(
    tmp_path: Path,
) -> None:
    carpal, box = Command(tmp_path), {"CARPAL_SANDBOX": "required"}
    eats = f"$ exec python3 -c 'x = b\"x\" * (300 << 20)' # {CANARY}"
    hand = {"limits": {"memory_bytes": 96 << 20}}
    async with (
        world(tmp_path / "state", environ=box) as it,
        session(it, eats, hand=hand) as made,
    ):
        await made.until_type("session.status_idle")
        [result] = made.data("agent.tool_result")
        assert (result["outcome"], result["cause"]) == ("error", "out_of_memory"), made.text()
        said = await told(it, carpal, made.session_id)
        (call,) = [each for each in said["findings"] if each["kind"] == "call_error"]
        assert call["layer"] == "hand"
        assert "of bash on hand shell failed" in call["text"]
        assert "the hand was out of memory: the kernel killed in it at its limit" in call["text"]
        assert "limits.memory_bytes" in call["next"]
        assert call["next"] in said["next"]


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_session_whose_only_daemon_is_in_quarantine_is_said_to_wait_for_it(
    tmp_path: Path,
) -> None:
    carpal = Command(tmp_path)
    async with world(tmp_path / "state") as it:
        async with it.orchestrator("b1") as brain:
            order = pb.QuarantineDaemonRequest(daemon_id="daemon-1", reason=CANARY)
            await brain.QuarantineDaemon(order, timeout=SECONDS)
        await until_state(it, "quarantined")
        async with session(it, "$ echo hi") as made:
            await until_driven(made)
            said = await told(it, carpal, made.session_id)
            assert not said["healthy"], said
            (wait,) = [each for each in said["findings"] if each["kind"] == "no_daemon_yet"]
            assert "daemon daemon-1 would, and is in quarantine" in wait["text"]
            async with it.orchestrator("b1") as brain:
                lift = pb.QuarantineDaemonRequest(daemon_id="daemon-1", lift=True)
                await brain.QuarantineDaemon(lift, timeout=SECONDS)
            await made.until_type("session.status_idle", seconds=2 * SECONDS)
            after = await told(it, carpal, made.session_id)
            assert after["healthy"], after
