"""Claude Code as these tests have it: the real program, a model that a test scripts."""

import asyncio
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from brain.runner import Runner
from brain.session.entries import New
from tests.brain.said import Said
from tests.brain.stage import WAIT, Stage, emit

SYSTEM = "You are careful."
LONG = 4 * WAIT
"""Seconds for what starts Claude Code, which takes a second of a core."""


@pytest.fixture(autouse=True)
def needs_claude_code() -> None:
    """What all of these need."""
    if find_spec("claude_agent_sdk") is None:
        pytest.skip("Claude Code is not here: the extra `claude-code` brings it")


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where processes of Claude Code get their folders."""
    base = tmp_path / "homes"
    base.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(base))
    return base


@pytest.fixture(autouse=True)
def nothing_is_left(homes: Path) -> Iterator[None]:
    """No process and no folder stays behind, whatever a test did."""
    yield
    assert processes(homes) == []
    assert list(homes.iterdir()) == []


def processes(homes: Path) -> list[int]:
    """Processes of Claude Code that live in a folder there."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                named = str(homes).encode() in (each / "environ").read_bytes()
            except OSError:
                continue
            if named and int(each.name) != os.getpid():
                found.append(int(each.name))
    return found


async def take_over(driven: Stage, **more: Any) -> None:
    """Have the session's agent name the harness, and time for it: no one renews this lease."""
    driven.driver.lease.extend(time.monotonic(), 2 * LONG)
    agent = {"name": "a", "model": "claude-sonnet-5", "max_tokens": 1000, "system": SYSTEM}
    await driven.driver.append(
        New("session.updated", {"agent": agent | {"harness": "claude_code"} | more})
    )


async def drive(driven: Stage, model: Said) -> int:
    """One drive; what it processed."""
    async with asyncio.timeout(LONG):
        runner = Runner(driven.driver, driven.fleet, driven.hub, model)
        return (await runner.run()).processed


async def say(driven: Stage, text: str) -> None:
    """A person says something, and the driver has it."""
    head = driven.driver.transcript.head
    content = {"content": [{"type": "text", "text": text}]}
    await emit(driven.sessions, "sesn_1", "user.message", content)
    await driven.driver.until(lambda t: t.head > head)


def blocks(request: dict[str, Any]) -> list[dict[str, Any]]:
    """All that is said in a request."""
    said: list[dict[str, Any]] = []
    for message in request["messages"]:
        content = message["content"]
        said += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return said


def texts(request: dict[str, Any]) -> list[str]:
    """The texts of a request."""
    return [block["text"] for block in blocks(request) if block["type"] == "text"]
