"""Two processes refresh once between them, and one that is killed loses nothing it need not.

The authorization server takes each refresh token once, and no grace.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults import Points, stopped
from tests.pace import SCALE
from tests.vault.oauth.kept import KEY
from tests.vault.oauth.world import World
from vault.oauth.rows import State

LIMIT = 30.0 * SCALE


@dataclass
class Child:
    """One process."""

    process: asyncio.subprocess.Process

    async def ask(self, what: str) -> dict[str, Any]:
        """Its answer; empty when it died over it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n".encode())
        return dict(json.loads(await self.line() or "{}"))

    async def line(self) -> bytes:
        assert self.process.stdout is not None
        async with asyncio.timeout(LIMIT):
            return await self.process.stdout.readline()


@asynccontextmanager
async def child(
    there: World, name: str = "one", points: Points | None = None
) -> AsyncIterator[Child]:
    bundle = there.folder / "bundle.pem"
    bundle.write_text(there.bundle)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.vault.oauth.refresher"),
        *(str(there.folder), str(there.port), str(bundle), name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **(points.environ if points else {})},
    )
    made = Child(process)
    try:
        assert await made.line() == b"ready\n"
        yield made
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.wait()


async def test_v33_two_processes_at_expiry_make_one_request(there: World) -> None:
    there.enrol()
    async with child(there, "one") as one, child(there, "two") as two:
        there.login.gate = asyncio.Event()
        asked = [asyncio.create_task(each.ask("fresh")) for each in (one, two)]
        async with asyncio.timeout(LIMIT):
            await there.login.asked.wait()
        there.login.gate.set()
        answers = await asyncio.gather(*asked)
    assert [each["access"] for each in answers] == [there.login.access[-1]] * 2
    assert len(there.login.posts) == 1


@pytest.fixture
def points(tmp_path: Path) -> Points:
    return Points(tmp_path / "faults")


async def killed(there: World, points: Points, name: str, *, once_asked: bool = False) -> None:
    """A process that is to refresh gets SIGKILL at a point."""
    if once_asked:
        there.login.gate = asyncio.Event()
    else:
        points.arm(name, "kill")
    async with child(there, "one", points) as one:
        asking = asyncio.create_task(one.ask("fresh"))
        if there.login.gate is not None:
            async with asyncio.timeout(LIMIT):
                await there.login.asked.wait()
            points.arm(name, "kill")
            there.login.gate.set()
        assert await asking == {}
        assert await one.process.wait() == -signal.SIGKILL
    assert points.taken(name)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("vault.oauth.before_claimed", State.FRESH),
        ("vault.safe.before_committed", State.FRESH),
        ("vault.safe.committed", State.REFRESH_UNKNOWN),
        ("vault.oauth.claimed", State.REFRESH_UNKNOWN),
        ("vault.oauth.before_sent", State.REFRESH_UNKNOWN),
    ],
)
async def test_killed_before_it_sent_anything_the_next_process_refreshes(
    there: World, points: Points, name: str, state: State
) -> None:
    there.enrol()
    await killed(there, points, name)
    assert there.login.posts == []
    async with child(there) as again:
        assert await again.ask("state") == {"state": state}
        assert (await again.ask("fresh"))["access"] == there.login.access[-1]
        assert await again.ask("state") == {"state": State.FRESH}
    assert len(there.login.posts) == 1


UNCOMMITTED = [("vault.oauth.answered", False), ("vault.safe.before_committed", True)]


@pytest.mark.parametrize(("name", "once_asked"), UNCOMMITTED)
@pytest.mark.parametrize("left", [300.0, -1.0])
async def test_v34_killed_between_answer_and_commit_it_is_unknown_then_tried_once_then_over(
    there: World, points: Points, name: str, once_asked: bool, left: float
) -> None:
    access = there.enrol(left=left)
    await killed(there, points, name, once_asked=once_asked)
    async with child(there) as again:
        assert await again.ask("state") == {"state": State.REFRESH_UNKNOWN}
        told = await again.ask("fresh")
        if left > 0:
            assert told["access"] == access, "the old one still serves"
        else:
            assert told == {"reason": "CREDENTIAL_NEEDS_CONSENT"}
        assert await again.ask("state") == {"state": State.NEEDS_REAUTH}
        assert await again.ask("fresh") == told
    assert len(there.login.posts) == 2
    assert there.login.posts[0] == there.login.posts[1]


async def test_v34_a_server_with_grace_gives_the_one_retry_its_tokens(
    there: World, points: Points
) -> None:
    there.login.rotates = False
    there.enrol()
    await killed(there, points, "vault.oauth.answered")
    async with child(there) as again:
        assert (await again.ask("fresh"))["access"] == there.login.access[-1]
        assert await again.ask("state") == {"state": State.FRESH}
    assert len(there.login.posts) == 2


@pytest.mark.parametrize(
    ("name", "once_asked"), [("vault.safe.committed", True), ("vault.oauth.committed", False)]
)
async def test_killed_after_the_commit_the_next_process_has_the_new_tokens(
    there: World, points: Points, name: str, once_asked: bool
) -> None:
    there.enrol()
    await killed(there, points, name, once_asked=once_asked)
    async with child(there) as again:
        assert await again.ask("state") == {"state": State.FRESH}
        assert (await again.ask("fresh"))["access"] == there.login.access[-1]
    assert len(there.login.posts) == 1


async def test_the_token_of_a_process_that_stood_still_past_its_lease_is_kept(
    there: World, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.enrol()
    points.arm("vault.oauth.answered", "stop")
    async with child(there, "one", points) as one:
        asking = asyncio.create_task(one.ask("fresh"))
        pid = await points.reached("vault.oauth.answered", LIMIT)
        await stopped(pid, LIMIT)
        assert await there.engine.state(KEY) == State.REFRESHING
        with there.desk.kept.safe.transaction():  # its lease runs out
            there.desk.kept.safe.database.execute("UPDATE oauth_refreshes SET until = 0")
        assert await there.engine.state(KEY) == State.REFRESH_UNKNOWN
        os.kill(pid, signal.SIGCONT)
        assert (await asking)["access"] == there.login.access[-1]
    assert await there.engine.state(KEY) == State.FRESH
