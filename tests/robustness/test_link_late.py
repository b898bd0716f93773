"""A brain that stood still past its lease wakes up and asks for what is no longer its to ask."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from brain.daemons.hands_at import DAEMON_KEY
from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import hand_pb2_grpc
from tests.interaction.play import HELD, Session, let_go, one_effect, pipes, session, started
from tests.robustness.link_world import SECONDS, LinkWorld, link_world
from tests.robustness.truth import check_log

if TYPE_CHECKING:
    from carpal.v1.hand_pb2_grpc import HandAsyncStub

pytestmark = pytest.mark.slow

WHERE = ((DAEMON_KEY, "daemon-1"),)


@pytest.fixture(scope="module")
async def it(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LinkWorld]:
    async with link_world(tmp_path_factory.mktemp("late") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """As everywhere, for as long as a world lasts."""
    return "asyncio", {"use_uvloop": False}


async def test_a_late_execute_from_a_brain_that_lost_its_session_is_refused(
    it: LinkWorld, tmp_path: Path
) -> None:
    """While the call runs under another, after its result, and after it was acknowledged."""
    work = pipes(tmp_path / "work")
    async with asyncio.timeout(2 * SECONDS), session(it.it, HELD, work) as made:
        await started(work)
        lease = await made.lease()
        late = lease.holder.rpartition("/")[2]
        it.signal(late, signal.SIGSTOP)
        it.it.fronts[late].refuse()  # the daemon finds the other one
        other = "b2" if late == "b1" else "b1"
        epoch = await taken_over(made, lease.epoch)
        async with relay(it, late, other) as stub:
            before = asking(made, lease.epoch)
            assert await until_claimed(stub, claiming(made, epoch)) == pb.CALL_STATE_RUNNING
            assert await refusal(stub, before) is Reason.STALE_EPOCH, "while it runs"
            await let_go(work)
            await made.until_type("agent.tool_result")
            assert await refusal(stub, before) is Reason.STALE_EPOCH, "after its result"
            await made.until_type("session.status_idle")
            state = await until_claimed(stub, claiming(made, epoch))
            assert state == pb.CALL_STATE_ACKNOWLEDGED
            assert await refusal(stub, before) is Reason.STALE_EPOCH, "after it was acknowledged"
            before.call_id = "sevt_another"
            assert await refusal(stub, before) is Reason.STALE_EPOCH, "of a call never seen"
        await it.mend()  # it wakes up
        head = len(made.log)
        await made.say("$ echo and on")
        await made.until_type("session.status_idle", after=head)
        check_log(made.session_id, made.log)
        results = made.data("agent.tool_result")
    assert [result["outcome"] for result in results] == ["ok", "ok"]
    assert len((work / "effects").read_text(encoding="utf-8").splitlines()) == 1


async def test_an_execute_sent_by_a_brain_that_was_about_to_and_stood_still_happens_once(
    it: LinkWorld, tmp_path: Path
) -> None:
    """It checked its lease, and then stood still; another gave the call its outcome meanwhile."""
    work = pipes(tmp_path / "work")
    (work / "started").unlink()  # a file, which nobody has to read
    it.points.arm("brain.execute.before_asked", "stop")
    async with asyncio.timeout(2 * SECONDS), session(it.it, HELD, work) as made:
        pid = await it.points.reached("brain.execute.before_asked", SECONDS)
        (late,) = [name for name in it.it.fronts if it.pids(name) == [pid]]
        lease = await made.lease()
        it.it.fronts[late].cut()
        await taken_over(made, lease.epoch)
        await let_go(work)
        await made.until_type("session.status_idle")
        await it.mend()
        head = len(made.log)
        await made.say("$ echo and on")
        await made.until_type("session.status_idle", after=head)
        check_log(made.session_id, made.log[:head])
        made.log[head:] = []
        one_effect(work, made)


async def taken_over(made: Session, epoch: int) -> int:
    """Until another brain drives; its epoch."""
    while True:
        lease = await made.lease()
        if lease.epoch > epoch:
            return lease.epoch
        await asyncio.sleep(0.05)


@asynccontextmanager
async def relay(it: LinkWorld, name: str, other: str) -> "AsyncIterator[HandAsyncStub]":
    """The hands of daemons at the other brain, as this brain is served them."""
    files = IdentityFiles(it.it.state / "brain" / name / "identity")
    async with dial(it.it.fronts[other].address, Role.BRAIN, files, retry=False) as channel:
        yield hand_pb2_grpc.HandStub(channel)


def asking(made: Session, epoch: int) -> pb.ExecuteRequest:
    """The call of the log, as its first driver would ask for it."""
    (use,) = [event for event in made.log if event.type == "agent.tool_use"]
    data = json.loads(use.data)
    return pb.ExecuteRequest(
        driver=pb.Driver(session_id=made.session_id, epoch=epoch, workspace="default"),
        hand_id=made.data("hand.provisioned")[0]["hand_id"],
        call_id=use.id,
        name=data["name"],
        input=json.dumps(data["input"]).encode(),
    )


def claiming(made: Session, epoch: int) -> pb.ClaimRequest:
    """How the call stands, for the driver that has it."""
    asked = asking(made, epoch)
    return pb.ClaimRequest(driver=asked.driver, hand_id=asked.hand_id, call_ids=[asked.call_id])


async def until_claimed(stub: "HandAsyncStub", request: pb.ClaimRequest) -> int:
    """How a call stands; a result that the driver is just acknowledging is waited for."""
    while True:
        try:
            with rpc_errors("the relay"):
                answer = await stub.Claim(request, metadata=WHERE, timeout=SECONDS)
        except CarpalError as error:
            if error.reason is not Reason.DAEMON_NOT_LINKED:
                raise
        else:
            if answer.calls[0].state != pb.CALL_STATE_TERMINAL:
                return answer.calls[0].state
        await asyncio.sleep(0.05)


async def refusal(stub: "HandAsyncStub", request: pb.ExecuteRequest) -> Reason | None:
    """Why an Execute is refused."""
    stream = stub.Execute(request, metadata=WHERE, timeout=SECONDS)
    try:
        with rpc_errors("the relay"):
            async for _ in stream:
                return None
    except CarpalError as error:
        return error.reason
    finally:
        stream.cancel()
    return None
