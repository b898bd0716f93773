"""Brains are killed at random, two or three at once: every session ends well, and its log is true.

A minute in a run of the tests, ten in a soak (CARPAL_SOAK_SECONDS says otherwise). What
sessions do, who dies and when follows from a seed, which is printed with the figures.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.play import Session, session
from tests.pace import SCALE, times
from tests.robustness.ledger import whole
from tests.robustness.minds import SAID_LAST, SUMMARISE, Mind, Step, named, plan, thinking
from tests.robustness.truth import Effects, check_each_call, check_log, check_requests
from tests.world import World, world

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("CARPAL_SOAK_SECONDS") or times(60, 600))
BRAINS = ("b1", "b2", "b3")
TERM = 2.0 * SCALE
"""Seconds of a lease."""
AT_ONCE = 5
"""Sessions that run beside each other."""
BETWEEN = (0.5 * SCALE, 3.0 * SCALE)
"""Seconds that all brains run before some die."""
GONE = (0.0, 1.5 * TERM)
"""Seconds until those that died are started again: sooner and later than their leases end."""
PATIENCE = 240.0 * SCALE
"""Seconds until a session must be idle: kills are what takes time."""
COMPACT = {"policy": "compact", "at_tokens": 4000, "keep_tokens": 1000, "instructions": SUMMARISE}
FAILURES: tuple[dict[str, Any], ...] = (
    {"fails": {"status": 529}},
    {"fails": {"status": 500, "times": 2}},
    {"fails": {"status": 429, "retry_after": 0.2}},
    {"fails": {"status": 529, "after": 3}},
    {"cut": {"after": 4}},
)
"""How the model fails now and then, at first."""


@dataclass
class Soak:
    """What all that runs shares."""

    it: World
    mind: Mind
    chance: random.Random
    folder: Path
    ends: float
    """When no session is begun any more, nor a brain killed; monotonic."""
    figures: Counter[str] = field(default_factory=Counter)

    @property
    def over(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self.ends


@pytest.fixture
async def soak(tmp_path: Path, chance: random.Random) -> AsyncIterator[Soak]:
    environ = {"CARPAL_RECONNECT_MAX": "1", "CARPAL_HAND_IDLE": "5"}
    async with (
        thinking() as (mind, url),
        world(tmp_path / "state", brains=BRAINS, term=TERM, environ=environ, model=url) as it,
    ):
        yield Soak(it, mind, chance, tmp_path, time.monotonic() + SECONDS)


@pytest.mark.timeout(SECONDS + 2 * PATIENCE)
async def test_whenever_brains_are_killed_every_session_ends_and_nothing_happens_twice(
    soak: Soak, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    began = time.monotonic()
    seeds = dict.fromkeys(said for *_, said in request.node._report_sections)
    async with asyncio.TaskGroup() as group:
        for worker in range(AT_ONCE):
            # Each with chances of its own: who is faster changes nobody's plans.
            group.create_task(work(soak, worker, random.Random(soak.chance.random())))
        group.create_task(kill(soak, random.Random(soak.chance.random())))
    told = {"seconds": round(time.monotonic() - began, 1), **dict(sorted(soak.figures.items()))}
    with capsys.disabled():
        sys.stdout.write(f"\n{' '.join(seeds)} {json.dumps(told)}\n")
    assert soak.figures["sessions"] >= AT_ONCE
    assert soak.figures["kills"]


async def kill(soak: Soak, chance: random.Random) -> None:
    """Kill some, start them again, until it is time; then all run."""
    while not soak.over:
        await asyncio.sleep(chance.uniform(*BETWEEN))
        dying = chance.sample(BRAINS, chance.choice([1, 1, 2, 2, 3]))
        await asyncio.gather(*(soak.it.running[name].kill() for name in dying))
        soak.figures["kills"] += len(dying)
        await asyncio.sleep(chance.uniform(*GONE))
        await asyncio.gather(*(soak.it.brain(name) for name in dying))


async def work(soak: Soak, worker: int, chance: random.Random) -> None:
    """One session after the other, until it is time."""
    number = 0
    while not soak.over:
        name = f"session-{worker}-{number}"
        number += 1
        effects = Effects(soak.folder / name)
        steps = planned(chance, effects)
        agent: dict[str, Any] = {"system": plan(name, steps)}
        if chance.random() < 0.5:
            agent["permissions"] = {"tools": {"build__bash": "always_ask"}}
        if chance.random() < 0.5:
            agent["context"] = COMPACT
        hands = ("shell", "build")
        async with session(soak.it, "Do as planned.", hands=hands, agent=agent) as made:
            try:
                await driven_to_its_end(soak, made)
                await check(soak, made, name, effects, steps)
            except AssertionError as error:
                error.add_note(f"{name}, {made.session_id}; its log:\n{made.text()}")
                raise


def planned(chance: random.Random, effects: Effects) -> list[Step]:
    """Some replies with some calls each; the model fails at some."""
    steps = []
    for number in range(chance.randint(2, 8)):
        calls = []
        for call in range(chance.choice([1, 1, 2, 3])):
            seconds, lines = chance.choice([0.0, 0.1, 0.5]), chance.choice([0, 300, 1500])
            command = effects.command(named(number, call), seconds, lines)
            calls.append((chance.choice(["", "", "build"]), command.removeprefix("$ ")))
        more = chance.choice(FAILURES) if chance.random() < 0.2 else {}
        steps.append(Step(calls, **more))
    return steps


async def driven_to_its_end(soak: Soak, made: Session) -> None:
    """To the end of all it is to do; a person allows what asks, and says it when all gave up."""
    after = 0
    allowed: set[str] = set()
    while True:
        idle = await made.until_type("session.status_idle", after, seconds=PATIENCE)
        after = idle.position
        reason = json.loads(idle.data)["stop_reason"]
        if reason["type"] == "requires_action":
            for call_id in set(reason["event_ids"]) - allowed:
                allowed.add(call_id)
                await made.allow(call_id)
                soak.figures["allowed"] += 1
        elif reason["type"] == "retries_exhausted":
            # Too many brains died at the same step: by design that is for a person to see.
            soak.figures["given_up"] += 1
            await made.say("Go on.")
        else:
            assert reason["type"] == "end_turn"
            return


async def check(soak: Soak, made: Session, name: str, effects: Effects, steps: list[Step]) -> None:
    """Hold its log against all that is known."""
    sent = dict(soak.mind.sent.pop(name))
    log = await whole(made.stub, made.session_id)  # has all that was sent by now
    check_log(made.session_id, log)
    names = check_each_call(log, effects, all_ok=True)
    wanted = [named(n, call) for n, step in enumerate(steps) for call in range(len(step.calls))]
    assert sorted(names) == sorted(wanted), "not what the model asked for"
    check_requests(made.session_id, log, sent)
    assert SAID_LAST in made.data("agent.message")[-1]["content"][0]["text"]
    kinds = Counter(event.type for event in log)
    soak.figures["sessions"] += 1
    soak.figures["events"] += len(log)
    soak.figures["calls"] += kinds["agent.tool_use"]
    soak.figures["requests"] += kinds["span.model_request_start"]
    ended = [json.loads(e.data) for e in log if e.type == "span.model_request_end"]
    answered = sum(not end["is_error"] for end in ended)
    soak.figures["requests_that_failed"] += kinds["span.model_request_start"] - answered
    soak.figures["cuts"] += kinds["agent.thread_context_compacted"]
    drivers = {e.source for e in log if e.type.startswith(("agent.", "span."))}
    soak.figures["sessions_of_several_drivers"] += len(drivers) > 1
