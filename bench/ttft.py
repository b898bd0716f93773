"""Latency added before the first token: hands made when they are needed, against made first.

The same tasks on the same processes, over mutual TLS, with containers of a real Docker engine that
a git repository is cloned into; but that one harness has the hand made before it asks the model.
So many arrive at once; a share of them never uses a hand. Added is what passes from a message's
commit to the model's request: what the model takes itself comes on top, and is in the totals. The
last line is one JSON object.
"""

import argparse
import asyncio
import itertools
import json
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import provision_first
from bench.figures import Goal, against, percentiles
from bench.whole import IDLE, SECONDS, Json, Whole, seconds, whole
from tests.command import ROOT
from tests.engine import Engine, engine
from tests.git_server import git_server
from tests.images import DEBIAN, add_debian

LATENCIES = (0.0, 0.8)
"""Seconds to the model's first token: none, and what a large model takes."""
NO_HAND = 0.4
"""The share of tasks that never use a hand."""
ARMS = {"lazy": "tool_loop", "provision first": provision_first.NAME}
"""What is compared, and the harness that does it."""
_FILES, _FILE_BYTES = 200, 4_000
"""Of the repository."""
_IDLE = 1.0
"""Seconds after which an idle session's hand is let go of, so that each round begins with none."""


@dataclass(frozen=True)
class Size:
    """How many rounds there are of so many arrivals at once."""

    rounds: dict[int, int]


WHOLE = Size({1: 10, 4: 5, 16: 4})
QUICK = Size({1: 1, 4: 1, 16: 1})
"""Says whether all is in order; its figures are no claim."""
GOALS = {"added_p50_reduction": Goal(at_least=0.6), "added_p95_reduction": Goal(at_least=0.9)}
Waits = list[tuple[float, float]]
"""Of each task, in milliseconds: what it had added, and how long it took to its end."""


async def measure(folder: Path, size: Size) -> Json:
    """All of the claim's figures."""
    harnesses = folder / "harnesses"
    provision_first.install(harnesses)
    with engine() as docker, git_server(folder / "git") as git:
        await asyncio.to_thread(add_debian, docker.client)
        files = {f"src/file-{n}.txt": os.urandom(_FILE_BYTES // 2).hex() for n in range(_FILES)}
        git.repository("app", files)
        path = (str(harnesses), str(ROOT), os.environ.get("PYTHONPATH", ""))
        environ = {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "DOCKER_HOST": docker.url,
            "CARPAL_HAND_IDLE": str(_IDLE),
        }
        hand = {
            "type": "container",
            "config": {"image": DEBIAN},
            "resources": [[f"git:{git.url}/app", "app"]],
            "orphan_deadline": 600.0,
        }
        async with whole(folder / "state", environ) as it:
            return await _Bench(it, docker, hand).run(size)


class _Bench:
    def __init__(self, it: Whole, docker: Engine, hand: Json) -> None:
        self._it = it
        self._docker = docker
        self._hand = hand
        self._marks = itertools.count()

    async def run(self, size: Size) -> Json:
        for harness in ARMS.values():
            await self._arrive(range(1), harness)  # what is made once for all hands is there
        figures: Json = {"added_p50_reduction": 1.0, "added_p95_reduction": 1.0, "totals": []}
        for latency, (arrivals, rounds) in itertools.product(LATENCIES, size.rounds.items()):
            await self._it.model.latency(latency)
            waits: dict[str, Waits] = {arm: [] for arm in ARMS}
            for turn in range(rounds):
                tasks = range(turn * arrivals, (turn + 1) * arrivals)
                for arm, harness in ARMS.items():
                    waits[arm] += await self._arrive(tasks, harness)
            told = _told(arrivals, latency, waits)
            figures["totals"].append(told)
            if arrivals == max(size.rounds):
                for name in GOALS:
                    figures[name] = min(figures[name], told[name])
        return figures

    async def _arrive(self, numbers: range, harness: str) -> Waits:
        """These tasks at once, driven to their end and their hands gone."""
        tasks = [_task(number, f"task-{next(self._marks)}") for number in numbers]
        made = await asyncio.gather(
            *(self._it.create(text, {"box": self._hand}, harness=harness) for _, text in tasks)
        )
        await self._it.idle([session_id for session_id, _ in made])
        came = await self._it.model.came()
        waits = []
        for (mark, text), (session_id, said) in zip(tasks, made, strict=True):
            done = await self._check(session_id, called="$" in text)
            waits.append((1000 * (came[mark] - said), 1000 * (done - said)))
        async with asyncio.timeout(SECONDS):
            while await asyncio.to_thread(self._docker.containers):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.1)  # the engine tells nobody
        return waits

    async def _check(self, session_id: str, *, called: bool) -> float:
        """When a task was done; RuntimeError unless it found in its hand what it should."""
        events = await self._it.events(session_id)
        log = {event.type: event.data.decode() for event in events}
        if failed := log.get("hand.provision_failed"):
            raise RuntimeError(f"a hand was not made: {failed}")
        if called and f"{_FILES}\\n" not in log.get("agent.tool_result", ""):
            raise RuntimeError(f"the repository is not in a hand: {log.get('agent.tool_result')}")
        return next(seconds(event) for event in events if event.type == IDLE)


def _task(number: int, mark: str) -> tuple[str, str]:
    """A task's mark and its text; the share of those without a hand is even."""
    without = int((number + 1) * NO_HAND) > int(number * NO_HAND)
    return mark, f"bench:{mark}" + ("" if without else "\n$ ls app/src | wc -l")


def _told(arrivals: int, latency: float, waits: dict[str, Waits]) -> Json:
    """The figures of so many arrivals at one latency; printed too."""
    told: Json = {"arrivals": arrivals, "latency_ms": round(1000 * latency)}
    each = {arm: percentiles([added for added, _ in row]) for arm, row in waits.items()}
    said = []
    for arm, (p50, p95) in each.items():
        name = arm.replace(" ", "_")
        told |= {f"{name}_added_p50_ms": round(p50, 1), f"{name}_added_p95_ms": round(p95, 1)}
        totals = [1000 * latency + wait for wait in (p50, p95)]
        told |= {f"{name}_p50_ms": round(totals[0], 1), f"{name}_p95_ms": round(totals[1], 1)}
        done, _ = percentiles([took for _, took in waits[arm]])
        told[f"{name}_done_p50_ms"] = round(done, 1)
        said.append(
            f"{arm} {p50:,.0f} ms added p50, {p95:,.0f} p95, in all {totals[0]:,.0f} and "
            f"{totals[1]:,.0f}, done {done:,.0f} p50"
        )
    for index, name in enumerate(GOALS):
        lazy, first = (each[arm][index] for arm in ARMS)
        told[name] = round(1 - lazy / first, 3)
    print(f"{arrivals} at once, model {1000 * latency:.0f} ms: {'; '.join(said)}", flush=True)
    return told


def main() -> None:
    """Measure, print, and end with JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything: no claim")
    options = parser.parse_args()
    logging.disable()
    # Short: the path of a hand's socket is below it.
    folder = Path(tempfile.mkdtemp(prefix="carpal-ttft-", dir="/tmp"))
    try:
        figures = asyncio.run(measure(folder, QUICK if options.quick else WHOLE))
    finally:
        shutil.rmtree(folder)
    print(f"{NO_HAND:.0%} of the tasks never use a hand")
    against({name: figures[name] for name in GOALS}, GOALS)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
