"""Other processes die, people interrupt: each side effect is there once, the log is true."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from carpal import children
from carpal.chain import event_hash, genesis
from carpal.client import dial, from_rpc
from carpal.identity import Role
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from tests.faults import supervisors, tree
from tests.interaction.play import (
    EFFECT,
    HELD,
    SECONDS,
    Session,
    let_go,
    one_effect,
    pipes,
    session,
    started,
)
from tests.world import World, world


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "state", brains=("b1", "b2")) as running:
        yield running


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return pipes(tmp_path / "work")


async def finished(made: Session) -> None:
    await made.until_type("session.status_idle")
    verify(made)


def verify(made: Session) -> None:
    """Positions without gaps, and a chain that holds from the session's genesis."""
    assert [e.position for e in made.log] == list(range(1, len(made.log) + 1))
    previous = genesis(made.session_id)
    for e in made.log:
        previous = event_hash(
            previous,
            id=e.id,
            position=e.position,
            time_ns=e.time.ToNanoseconds(),
            type=e.type,
            source=e.source,
            must_understand=e.must_understand,
            digest=e.data_digest,
        )
        assert previous == e.hash, f"event {e.position}"


async def test_a_daemon_killed_in_the_middle_of_a_call_is_restarted_and_the_call_goes_on(
    it: World, work: Path
) -> None:
    async with session(it, HELD, work) as made:
        await started(work)
        await it.running["daemon"].kill()
        await it.daemon()
        await let_go(work)
        await finished(made)
        one_effect(work, made)


async def test_sessiond_killed_in_the_middle_of_a_call_loses_nothing_and_nothing_runs_twice(
    it: World, work: Path
) -> None:
    async with session(it, HELD, work) as made:
        await started(work)
        await it.running["sessiond"].kill()
        await let_go(work)
        await it.sessiond()
        await finished(made)
        one_effect(work, made)


async def test_with_the_vault_gone_a_session_goes_on(it: World, work: Path) -> None:
    await it.running["vault"].kill()
    async with session(it, EFFECT.format(seconds=0), work) as made:
        await started(work)
        await finished(made)
        one_effect(work, made)


async def test_a_supervisor_killed_in_the_middle_of_a_call_is_a_lost_hand_and_says_so(
    it: World, work: Path
) -> None:
    async with session(it, "$ echo > started; sleep 30\n$ echo on a new hand", work) as made:
        await started(work)
        (supervisor,) = supervisors(it.state / "hand" / "hands")
        os.kill(supervisor, signal.SIGKILL)
        await finished(made)
    first, second = made.data("agent.tool_result")
    assert first["outcome"] == "lost"
    assert "may have partly happened" in first["content"][0]["text"]
    assert second["outcome"] == "ok", "the session went on, on another hand"
    assert len(made.data("hand.provisioned")) == 2


async def test_an_interrupt_ends_the_call_with_all_that_runs_under_it(
    whole: World, work: Path
) -> None:
    async with session(whole, "$ echo > started; setsid sleep 987 & sleep 987", work) as made:
        await started(work)
        (supervisor,) = supervisors(whole.state / "hand" / "hands")
        assert len(tree(supervisor)) > 1
        await made.interrupt()
        await finished(made)
        (result,) = made.data("agent.tool_result")
        assert result["outcome"] == "cancelled"
        assert made.data("session.status_idle")[-1]["stop_reason"]["type"] == "end_turn"
        assert not [p for p in tree(supervisor) if b"987" in cmdline(p)]
        await made.say("$ echo usable")
        await made.until(lambda e: e.type == "agent.tool_result", after=len(made.log))
        assert made.results()[-1].startswith("usable")


async def test_an_interrupt_while_the_model_is_asked_ends_the_turn(
    whole: World, work: Path
) -> None:
    async with session(whole, "$ sleep 0.2\n" * 50, work) as made:
        await made.until_type("agent.tool_result")
        await made.interrupt()
        await finished(made)
        assert len(made.data("agent.tool_result")) < 50


async def test_a_call_reaches_a_daemon_linked_at_another_brain_by_one_hop(
    whole: World, work: Path
) -> None:
    async with whole.orchestrator("b1") as stub:
        listed = await stub.ListDaemons(orchestrator_pb2.ListDaemonsRequest(), timeout=SECONDS)
    (daemon,) = listed.daemons
    other = "b2" if daemon.brain == "b1" else "b1"
    # Both take sessions as they come; before long the other one drives, and must relay.
    drivers = set()
    for number in range(20):
        folder = work / str(number)
        folder.mkdir()
        async with session(whole, EFFECT.format(seconds=0), folder) as made:
            await finished(made)
            one_effect(folder, made)
            drivers |= {
                e.source.rpartition("/")[2] for e in made.log if e.type == "hand.provisioned"
            }
        if other in drivers:
            break
    assert other in drivers, "20 sessions, and none was driven by the brain without the link"


async def test_a_brain_that_is_asked_to_stop_hands_its_sessions_over_at_once(
    it: World, work: Path
) -> None:
    async with session(it, HELD, work) as made:
        await started(work)
        driver = await made.driver()
        await it.running[driver].kill(signal.SIGTERM)
        await let_go(work)
        await finished(made)
        one_effect(work, made)
        assert made.log[-1].source.rpartition("/")[2] != driver
        await it.brain(driver)


async def test_a_brain_that_starts_anew_waits_for_the_daemon_before_it_asks_the_model(
    tmp_path: Path,
) -> None:
    async with world(tmp_path / "state") as it:
        await it.running["b1"].kill()
        async with session(it, "$ echo done") as made:
            await it.brain("b1")
            await finished(made)
        assert made.results(), made.text()
        assert made.results()[0].startswith("done")


async def test_a_copied_machine_is_refused_at_every_brain_and_the_first_goes_on_l28(
    it: World, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(it.state / "hand" / "identity", clone / "hand" / "identity")
    shutil.copy(it.state / "hand" / "links.json", clone / "hand" / "links.json")
    log = tmp_path / "clone.log"
    command = ["hand", "run", "--state-dir", str(clone)]
    copy = await children.start("clone", command, log=log, environ=os.environ)
    try:
        async with asyncio.timeout(SECONDS):
            while "is quarantined" not in log.read_text():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.1)
    finally:
        copy.process.kill()
        await copy.process.wait()
    await it.running["daemon"].kill()
    await it.daemon()
    async with session(it, "$ echo whole again") as made:
        await finished(made)
    assert made.results()[0].startswith("whole again")


async def test_a_daemon_that_dials_and_says_nothing_is_cut_off(whole: World) -> None:
    files = IdentityFiles(whole.state / "hand" / "identity")
    address = whole.running["b1"].facts["address"]
    async with dial(address, Role.BRAIN, files, retry=False) as channel:
        stream = orchestrator_pb2_grpc.OrchestratorStub(channel).Connect()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            async with asyncio.timeout(SECONDS):
                await stream.read()
        assert from_rpc(raised.value, "b1").reason is Reason.LINK_SILENT


async def test_a_message_sent_while_a_call_runs_is_answered_in_the_same_turn(
    whole: World, work: Path
) -> None:
    async with session(whole, "$ echo > started; read x < go; echo first", work) as made:
        await started(work)
        await made.say("$ echo second")
        await let_go(work)
        await finished(made)
        await made.until(lambda e: e.type == "agent.tool_result" and b"second" in e.data)
    assert [r.splitlines()[0] for r in made.results()] == ["first", "second"]


async def test_calls_on_two_hands_run_each_on_its_own(whole: World) -> None:
    task = "$ pwd\n@build $ pwd"
    async with session(whole, task, hands=("shell", "build")) as made:
        await finished(made)
    uses = [json.loads(e.data) for e in made.log if e.type == "agent.tool_use"]
    assert [(u["hand"], u["name"]) for u in uses] == [("shell", "bash"), ("build", "bash")]
    first, second = made.results()
    assert first != second


async def test_the_first_model_request_leaves_before_any_hand_exists(whole: World) -> None:
    async with session(whole, "$ true") as made:
        await finished(made)
    kinds = [e.type for e in made.log]
    assert kinds.index("span.model_request_start") < kinds.index("hand.provision_requested")


async def test_a_task_that_uses_no_tool_provisions_no_hand(whole: World) -> None:
    async with session(whole, "hello") as made:
        await finished(made)
    assert not [e.type for e in made.log if e.type.startswith("hand.")]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
