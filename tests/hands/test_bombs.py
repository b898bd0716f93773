"""Fork bombs against a supervisor that runs as a user with few processes, as in a sandbox."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hands.builtin.supervised import SupervisedHand
from hands.contract import Call, Result
from hands.inside import tree
from tests.hands.place import PATIENCE, until
from tests.pace import SCALE

ROOT = Path(__file__).parents[2]
START = """
import ctypes, os, resource, sys
root, user, room = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.path.append(root)
from hands import supervisor
import hashlib, locale, hands.inside.beneath
resource.setrlimit(resource.RLIMIT_NPROC, (room, room))
if os.getuid() != user:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # else its own /proc stays root's
sys.argv = ["supervisor", *sys.argv[4:]]
supervisor.main()
"""
"""Becomes that user once all is read: the interpreter may be in somebody's home."""
ROOM = 64
"""Processes the hand may have."""
NOBODY = 29_431
"""A user nobody else is."""
BOMBS = {
    "naive": ":(){ :|:& };:",
    "setsid": (
        'printf \'#!/bin/sh\\nsetsid "$0" & setsid "$0" & wait\\n\' > b; chmod +x b; ./b & true'
    ),
    "in the foreground": ":(){ :|:; }; :",
}


class Crowded:
    """A hand whose user may have so many processes, and no more."""

    def __init__(self, hand: SupervisedHand, user: int, others: int) -> None:
        self.hand = hand
        self._user = user
        self._others = others
        self._calls = 0

    def processes(self) -> int:
        """Of its user, beside those there were before."""
        return _processes_of(self._user) - self._others

    async def sh(self, command: str, limit: float = 0.0) -> Result:
        """A bash call's result."""
        self._calls += 1
        call = Call(f"c{self._calls}", "bash", {"command": command}, limit)
        async with asyncio.timeout(PATIENCE):
            (result,) = [s async for s in self.hand.execute(call) if isinstance(s, Result)]
        return result


@pytest.fixture
async def crowded() -> AsyncIterator[Crowded]:
    """Started by hand: a daemon would not limit itself."""
    user = NOBODY if os.geteuid() == 0 else os.getuid()
    others = _processes_of(user)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "workspace").mkdir()
        for path in (folder, folder / "workspace"):
            os.chown(path, user, -1)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", START, str(ROOT), str(user), str(others + ROOM)),
            *("--folder", name, "--workspace", str(folder / "workspace")),
            *("--hand-id", "h", "--deadline", "600"),
            stdout=asyncio.subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"]},
        )
        assert await process.wait() == 0
        hand = await SupervisedHand.connect(folder)
        try:
            yield Crowded(hand, user, others)
        finally:
            await hand.release()
            await until(lambda: not tree.alive(hand.pid, hand.start), "it lives on")


def _processes_of(user: int) -> int:
    return sum(1 for process in Path("/proc").glob("[0-9]*") if _owner(process) == user)


def _owner(process: Path) -> int:
    try:
        return process.stat().st_uid
    except OSError:
        return -1


@pytest.mark.parametrize("bomb", BOMBS)
async def test_after_a_fork_bomb_the_next_call_works_within_five_seconds_h09_h33(
    crowded: Crowded, bomb: str
) -> None:
    first = await crowded.sh(BOMBS[bomb], limit=2.0 * SCALE)
    if bomb == "in the foreground":
        assert first.outcome == "timed_out"
        assert "Resource temporarily unavailable" in first.content
    else:  # on a busy machine it takes a while to be one
        await until(lambda: crowded.processes() > ROOM // 2, "the bomb does not grow")
    for _ in range(3):
        begun = time.monotonic()
        after = await crowded.sh("/bin/echo on | cat; /bin/true && echo done", limit=20 * SCALE)
        assert time.monotonic() - begun < 5.0 * SCALE
        assert after.content.startswith("on\ndone\n"), after


@pytest.mark.parametrize("pace", [0.05, 0.15])
async def test_a_call_beside_which_a_bomb_still_grows_works_within_five_seconds_h09_h33(
    crowded: Crowded, pace: float
) -> None:
    grows = f"f() {{ sleep {pace}; f & f & wait; }}; f & true"
    assert (await crowded.sh(grows)).outcome == "ok"
    remarks = ""
    for _ in range(3):  # the bomb meets its limit in the middle of one of them
        begun = time.monotonic()
        after = await crowded.sh(
            "SECONDS=0; until [ $SECONDS -ge 2 ]; do /bin/echo on | cat >>said; done; echo done",
            limit=20 * SCALE,
        )
        assert time.monotonic() - begun < 5.0 * SCALE
        assert after.outcome == "ok", after
        assert "done\n" in after.content
        remarks += after.content
    assert "killed: they left no room for this call" in remarks
    assert crowded.processes() < ROOM // 4


async def test_a_call_that_takes_all_room_itself_costs_no_background_job_h32(
    crowded: Crowded,
) -> None:
    jobs = 36
    await crowded.sh(f"for i in $(seq {jobs}); do sleep 60 & done; true")
    await crowded.sh("for i in $(seq 40); do sleep 1 & done 2>/dev/null; sleep 1", limit=1.0)
    after = await crowded.sh("/bin/echo on | cat")
    assert after.background >= jobs, after


async def test_background_jobs_that_leave_room_are_left_alone_h32(crowded: Crowded) -> None:
    jobs = 36  # many, but no bomb
    first = await crowded.sh(f"for i in $(seq {jobs}); do sleep 60 & done; true")
    assert first.background == jobs
    after = await crowded.sh("/bin/echo on | cat")
    assert (after.content, after.background) == ("on\n", jobs)
