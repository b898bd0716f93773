"""SIGKILL and SIGSTOP at every step that is written down or sent: the call happens at most once.

And the log says what became of it. Every process at every step is a soak; a run of the
tests takes some, by chance.
"""

import asyncio
import logging
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults import Action, stopped
from tests.interaction.play import session
from tests.pace import times
from tests.robustness.link_world import MANY, SECONDS, LinkWorld, link_world, send
from tests.robustness.truth import Effects, check_calls, check_log

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BRAIN = (
    *("intent.before_appended", "intent.appended"),
    *("hand.before_requested", "hand.requested", "hand.before_provisioned", "hand.provisioned"),
    *("execute.before_asked", "request_execute.before_written", "request_execute.written"),
    *("result.received", "result.before_appended", "result.appended", "result.acknowledged"),
    *("link.before_welcomed", "link.welcomed", "welcome.before_written", "welcome.written"),
    *("attach_acknowledged.before_written", "attach_acknowledged.written"),
)
DAEMON = (
    *("hand.before_provisioning", "hand.provisioning"),
    *("hand.before_provisioned", "hand.provisioned"),
    # No call waits in line here; of one that does, tests/hands/test_restart.py tells.
    *("call.before_starting", "call.starting", "call.before_running", "call.running"),
    *("call.before_terminal", "call.terminal"),
    *("reply_execute.before_written", "reply_execute.written"),
    *("reply.before_queued", "reply.queued"),
    *("call.before_acknowledged", "call.acknowledged"),
    *("hand.before_released", "hand.released"),
    *("link.before_welcomed", "link.welcomed", "hello.before_written", "hello.written"),
    *("session.before_epoch_raised", "session.epoch_raised"),
    *("attach_open.before_written", "attach_open.written"),
    *("attach_output.before_written", "attach_output.written"),
    *("attach_result.before_written", "attach_result.written"),
)
SUPERVISOR = (
    *("hand.bound", "call.taken", "call.before_started", "call.started"),
    *("result.kept", "result.told", "call.forgotten"),
)
STEPS = {"brain": BRAIN, "daemon": DAEMON, "supervisor": SUPERVISOR}
STILL = 0.5
"""Seconds that a stopped process stands still, unless the lease's end is waited for."""


@pytest.fixture(scope="module")
async def it(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LinkWorld]:
    async with link_world(tmp_path_factory.mktemp("steps") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """As everywhere, for as long as a world lasts."""
    return "asyncio", {"use_uvloop": False}


@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("process", list(STEPS))
async def test_a_process_that_dies_or_stands_still_at_a_step_costs_no_call_its_one_true_outcome(
    it: LinkWorld,
    tmp_path: Path,
    chance: random.Random,
    process: str,
    action: Action,
) -> None:
    steps = list(STEPS[process])
    chance.shuffle(steps)
    wrong: list[Exception] = []
    for step in steps[: times(2, len(steps))]:
        point = f"{process}.{step}"
        try:
            await case(it, Effects(tmp_path / point), point, action)
        except Exception as error:
            error.add_note(f"at {action} {point}")
            log.warning("it failed", exc_info=error)
            wrong.append(error)
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} steps", wrong)


async def case(it: LinkWorld, effects: Effects, point: str, action: Action) -> None:
    """A session of two calls, through one process that dies or stands still once."""
    names = ["one", "two"]
    it.points.arm(point, action)
    if ".link." in point or "welcome" in point or "hello" in point:
        for front in it.fronts:
            front.cut()
    lines = MANY if "attach" in point else 0
    task = "\n".join(effects.command(name, lines=lines) for name in names)
    async with session(it.it, task) as made:
        pid = await it.points.reached(point, SECONDS)
        if action == "stop":
            await stopped(pid, SECONDS)
            await asyncio.sleep(STILL)  # how long it stands still is the fault
            send(pid, signal.SIGCONT)
        await it.mend()
        await made.until_type("session.status_idle", seconds=SECONDS)
        check_log(made.session_id, made.log)
        # Who stands still for a moment excuses nothing, nor does a brain's death.
        all_ok = action == "stop" or point.startswith("brain.")
        check_calls(made.log, effects, names, all_ok=all_ok)
        await it.nothing_is_left()
