"""Whoever dies, and whatever the session is at: it goes on, and its log says what is true.

Four sessions stand at four moments when it happens: one runs parallel calls, one waits
for a person, one has its window cut, one waits for the model. Each comes to its end,
each of its calls with one true result, and nothing happened twice.
"""

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import types_pb2
from tests.faults import supervisors
from tests.interaction.play import Session, let_go, pipes, session, started
from tests.pace import SCALE, times
from tests.robustness.ledger import whole
from tests.robustness.link_world import HEARTBEAT, SECONDS, LinkWorld, link_world, send
from tests.robustness.minds import SAID_LAST, SUMMARISE, Mind, Step, named, plan, thinking
from tests.robustness.truth import Effects, check_each_call, check_log, check_requests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DEADLINE = 4.0 * SCALE
"""Of hands whose daemon never comes back."""
COMPACT = {"policy": "compact", "at_tokens": 4000, "keep_tokens": 1000, "instructions": SUMMARISE}
LINES = 1500
"""That a call says which is to fill the window: two or three of them do."""
ASKS = {"tools": {"build__bash": "always_ask"}}
MOMENTS = ("parallel", "person", "compaction", "model")
POINTS = (
    *("request.before_started", "request.started"),
    *("intent.before_appended", "intent.appended"),
    *("window.before_cut", "window.cut"),
    *("hand.before_requested", "hand.requested", "hand.before_provisioned", "hand.provisioned"),
    *("execute.before_asked", "result.received"),
    *("result.before_appended", "result.appended", "result.acknowledged"),
    *("turn.before_finished", "turn.finished"),
)
"""Every step of a session at a brain."""


@dataclass
class Stage:
    """The world, with a model that can be held."""

    at: LinkWorld
    mind: Mind
    made: int = 0
    """Sessions begun in it."""


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    environ = {"CARPAL_ORPHAN_MARGIN": str(HEARTBEAT), "CARPAL_HAND_IDLE": "60"}
    async with thinking() as (mind, url):
        state = tmp_path_factory.mktemp("resume") / "state"
        async with link_world(state, environ=environ, model=url) as running:
            yield Stage(running, mind)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """As everywhere, for as long as a world lasts."""
    return "asyncio", {"use_uvloop": False}


@dataclass
class Case:
    """One session on its way to a moment, and beyond."""

    moment: str
    name: str
    effects: Effects
    work: Path
    mind: Mind
    made: Session = field(init=False)
    asked: types_pb2.Event | None = None
    """What a person is asked at the moment."""

    def steps(self) -> list[Step]:
        """What the session does."""
        match self.moment:
            case "two":
                held = self.effects.held(named(0, 1), self.work).removeprefix("$ ")
                return [Step([self.call(0, 0), ("build", held)])]
            case "parallel":
                held = self.effects.held(named(0, 1), self.work).removeprefix("$ ")
                return [
                    Step([self.call(0, 0), ("build", held), self.call(0, 2, "build")]),
                    Step([self.call(1, 0)]),
                ]
            case "person":
                return [
                    Step([self.call(0, 0, "build")]),
                    Step([self.call(1, 0), self.call(1, 1, "build")]),
                ]
            case "compaction":
                return [Step([self.call(n, 0, lines=LINES)]) for n in range(6)]
            case _:
                return [Step([self.call(0, 0)]), Step([self.call(1, 0), self.call(1, 1, "build")])]

    def call(self, step: int, number: int, hand: str = "", lines: int = 0) -> tuple[str, str]:
        """A call that is quick."""
        return hand, self.effects.command(named(step, number), 0.0, lines).removeprefix("$ ")

    def agent(self) -> dict[str, Any]:
        """By which it is driven."""
        said: dict[str, Any] = {"system": plan(self.name, self.steps())}
        if self.moment == "person":
            said["permissions"] = ASKS
        if self.moment == "compaction":
            said["context"] = COMPACT
        return said

    async def arrive(self) -> None:
        """Until it is at its moment."""
        match self.moment:
            case "parallel" | "two":
                await started(self.work)
                await self.made.until_type("agent.tool_result")
            case "person":
                first = await self._asks(0)
                await self.made.allow(_asked(first))
                self.asked = await self._asks(first.position)
            case "compaction":
                await self.mind.asked(self.name, "summary")
            case _:
                await self.mind.asked(self.name, "1")

    async def leave(self, *, runs: bool) -> None:
        """Let it go on. `runs`: whether the call that was running still does."""
        match self.moment:
            case "parallel" | "two":
                if runs:
                    await let_go(self.work)
            case "person":
                assert self.asked is not None
                await self.made.allow(_asked(self.asked))
            case "compaction":
                self.mind.let_go(self.name, "summary")
            case _:
                self.mind.let_go(self.name, "1")

    async def ends(self, *, all_ok: bool) -> None:
        """To the end of its turn; then all it says is held against what happened."""
        await self.made.until(_is_last, seconds=SECONDS)
        try:
            sent = dict(self.mind.sent[self.name])
            log = await whole(self.made.stub, self.made.session_id)  # has all that was sent by now
            check_log(self.made.session_id, log)
            names = check_each_call(log, self.effects, all_ok=all_ok)
            check_requests(self.made.session_id, log, sent)
            steps = enumerate(self.steps())
            planned = [named(n, call) for n, step in steps for call in range(len(step.calls))]
            assert sorted(names) == sorted(planned), "not what the model asked for"
            if self.moment == "compaction":
                assert self.made.data("agent.thread_context_compacted"), "the window was not cut"
        except AssertionError as error:
            error.add_note(f"{self.moment}; the log:\n{self.made.text()}")
            raise

    async def _asks(self, after: int) -> types_pb2.Event:
        return await self.made.until(
            lambda e: e.type == "session.status_idle" and b"requires_action" in e.data, after
        )


def _asked(idle: types_pb2.Event) -> str:
    (call_id,) = _reason(idle)["event_ids"]
    return str(call_id)


def _reason(idle: types_pb2.Event) -> dict[str, Any]:
    reason: dict[str, Any] = json.loads(idle.data)["stop_reason"]
    return reason


def _is_last(event: types_pb2.Event) -> bool:
    return event.type == "session.status_idle" and b"requires_action" not in event.data


async def brain(at: LinkWorld, cases: list[Case]) -> None:
    """Whoever drives one of them dies."""
    drivers = {await case.made.driver() for case in cases if case.moment != "person"}
    for name in drivers:
        await at.it.running[name].kill()
    await leave(cases)
    await at.mend()


async def link(at: LinkWorld, cases: list[Case]) -> None:
    """The daemon reaches no brain, and brains not each other."""
    for front in at.fronts:
        front.cut()
    await leave(cases)
    await asyncio.sleep(STILL)  # how long it lasts is the fault
    await at.mend()


async def hand(at: LinkWorld, cases: list[Case]) -> None:
    """Every hand dies."""
    for pid in supervisors(at.hands):
        send(pid, signal.SIGKILL)
    await leave(cases, runs=False)


async def daemon(at: LinkWorld, cases: list[Case]) -> None:
    """It dies, and calls end while it is away."""
    await at.it.running["daemon"].kill()
    await leave(cases)
    await at.mend()


async def daemon_for_ever(at: LinkWorld, cases: list[Case]) -> None:
    """What it had is given up before there is one again."""
    await at.it.running["daemon"].kill()
    await leave(cases, runs=False)
    for case in cases:
        await case.made.until(
            lambda e: e.type == "agent.tool_result" and b'"is_error":true' in e.data,
            seconds=SECONDS,
        )
    await at.mend()


async def sessiond(at: LinkWorld, cases: list[Case]) -> None:
    """It dies; calls and replies end while it is away."""
    await at.it.running["sessiond"].kill()
    await leave([case for case in cases if case.moment != "person"])
    await asyncio.sleep(STILL)  # how long it lasts is the fault
    await at.mend()
    await leave([case for case in cases if case.moment == "person"])


STILL = 0.5
"""Seconds that a fault lasts."""
ROWS: dict[str, Callable[[LinkWorld, list[Case]], Coroutine[Any, Any, None]]] = {
    "the_brain": brain,
    "the_link": link,
    "the_hand": hand,
    "the_daemon": daemon,
    "the_daemon_for_ever": daemon_for_ever,
    "sessiond": sessiond,
}
EXCUSED = ("the_hand", "the_daemon_for_ever")
"""Whose death is a reason for a call to end in another way than `ok`."""


async def leave(cases: list[Case], *, runs: bool = True) -> None:
    """All go on."""
    for case in cases:
        await case.leave(runs=runs)


@pytest.mark.parametrize("row", list(ROWS))
async def test_whoever_dies_a_session_at_any_moment_goes_on_to_its_end_and_says_what_is_true(
    stage: Stage, tmp_path: Path, row: str
) -> None:
    deadline = DEADLINE if row == "the_daemon_for_ever" else 600.0
    async with AsyncExitStack() as stack:
        cases = [await begun(stack, stage, moment, tmp_path, deadline) for moment in MOMENTS]
        for case in cases:
            await case.arrive()
        await ROWS[row](stage.at, cases)
        for case in cases:
            await case.ends(all_ok=row not in EXCUSED)


async def test_a_brain_killed_while_the_2nd_of_2_parallel_calls_runs_leaves_each_its_one_result_s01(
    stage: Stage, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        case = await begun(stack, stage, "two", tmp_path)
        await case.arrive()
        (finished,) = case.made.results()
        await brain(stage.at, [case])
        await case.ends(all_ok=True)
        assert case.made.results()[0] == finished, "its real output"
        assert len(case.made.results()) == 2
        drivers = {e.source for e in case.made.log if e.type == "agent.tool_result"}
        assert len(drivers) == 2, "each result is by another brain"
        said = await case.made.say("And now?")
        idle = await case.made.until_type("session.status_idle", said.position)
        assert _reason(idle)["type"] == "end_turn", "the next turn is accepted"
        assert case.made.data("agent.message")[-1]["content"][0]["text"] == SAID_LAST


async def test_a_brain_that_dies_at_any_step_leaves_each_session_to_one_that_goes_on(
    stage: Stage, tmp_path: Path, chance: random.Random
) -> None:
    points = [f"brain.{point}" for point in POINTS]
    chance.shuffle(points)
    for point in points[: times(3, len(points))]:
        stage.at.points.arm(point, "kill")
        async with AsyncExitStack() as stack:
            folder = tmp_path / point
            cases = [await begun(stack, stage, moment, folder) for moment in MOMENTS]
            await leave_as_they_come(stage, cases, point)
            for case in cases:
                await case.ends(all_ok=True)


async def leave_as_they_come(stage: Stage, cases: list[Case], point: str) -> None:
    """Each goes on once it is at its moment; a brain dies on the way, and there is another."""

    async def go(case: Case) -> None:
        await case.arrive()
        await case.leave(runs=True)

    async with asyncio.TaskGroup() as group:
        for case in cases:
            group.create_task(go(case))
        await stage.at.points.reached(point, SECONDS)
        await stage.at.mend()


async def begun(
    stack: AsyncExitStack, stage: Stage, moment: str, folder: Path, deadline: float = 600.0
) -> Case:
    """A session on its way to a moment."""
    stage.made += 1
    name = f"{moment}-{stage.made}"
    folder.mkdir(exist_ok=True)
    case = Case(moment, name, Effects(folder / name), pipes(folder / f"{name}.work"), stage.mind)
    if moment in HELD_AT:
        stage.mind.hold(name, HELD_AT[moment])
    opened = session(
        stage.at.it,
        "Do as planned.",
        hands=("shell", "build"),
        orphan_deadline=deadline,
        agent=case.agent(),
    )
    case.made = await stack.enter_async_context(opened)
    return case


HELD_AT = {"compaction": "summary", "model": "1"}
"""What the model is held at."""
