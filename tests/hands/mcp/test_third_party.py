"""MCP servers that others wrote, each as a hand in its sandbox: what they are asked, they do."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from carpal.v1 import hand_pb2 as pb
from tests import mcp_servers
from tests.hands.mcp.conftest import Servers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def made(
    servers: Servers, name: str, *arguments: str, **config: Any
) -> tuple[str, dict[str, pb.ToolInfo]]:
    """A hand that is this server, and its tools."""
    command = await asyncio.to_thread(mcp_servers.command, name)
    hand = await servers.hand(command=[*command, *arguments], **config)
    return hand, {tool.name: tool for tool in servers.made.tools}


def _repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "new.txt").write_text("new")
    subprocess.run(["chmod", "-R", "a+rwX", str(folder)], check=True)


async def test_the_git_server_says_what_is_otherwise_in_a_repository(servers: Servers) -> None:
    await asyncio.to_thread(_repository, servers.workspace / "repository")
    # Git takes no repository of another user's for its own, unless it is said to.
    safe = {"COUNT": "1", "KEY_0": "safe.directory", "VALUE_0": "*"}
    env = {f"GIT_CONFIG_{name}": text for name, text in safe.items()}
    hand, tools = await made(servers, "git", env=env)
    assert "git_status" in tools
    result = await servers.place.run(hand, "git_status", repo_path="/workspace/repository")
    assert (result.outcome, "new.txt" in result.content) == (pb.OUTCOME_OK, True), result.content
    result = await servers.place.run(hand, "git_status", repo_path="/etc")
    assert (result.outcome, bool(result.content)) == (pb.OUTCOME_ERROR, True)


async def test_the_time_server_tells_the_time_of_a_place(servers: Servers) -> None:
    hand, tools = await made(servers, "time")
    assert tools.keys() == {"get_current_time", "convert_time"}
    given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    result = await servers.place.run(hand, "convert_time", **given)
    assert (result.outcome, "21:00" in result.content) == (pb.OUTCOME_OK, True), result.content
    wrong = await servers.place.run(hand, "get_current_time", timezone="Nowhere/Land")
    assert wrong.outcome == pb.OUTCOME_ERROR
    assert "Nowhere/Land" in wrong.content


async def test_the_file_system_server_writes_in_its_folder_and_reads_nothing_beside_it(
    servers: Servers,
) -> None:
    hand, _ = await made(servers, "filesystem", "/workspace")
    run = servers.place.run
    wrote = await run(hand, "write_file", path="/workspace/a.txt", content="from a hand")
    assert wrote.outcome == pb.OUTCOME_OK, wrote.content
    assert (servers.workspace / "a.txt").read_text() == "from a hand"
    assert "from a hand" in (await run(hand, "read_text_file", path="/workspace/a.txt")).content
    outside = await run(hand, "read_text_file", path="/etc/passwd")
    assert outside.outcome == pb.OUTCOME_ERROR


async def test_the_server_of_everything_has_pictures_progress_and_structured_content(
    servers: Servers,
) -> None:
    hand, tools = await made(servers, "everything")
    run = servers.place.run
    assert "hello" in (await run(hand, "echo", message="hello")).content
    picture = await run(hand, "get-tiny-image")
    assert [each.media_type for each in picture.attachments] == ["image/png"]
    request = servers.place.request(hand, "trigger-long-running-operation", duration=1, steps=2)
    steps = await servers.place.steps(request)
    output = b"".join(step.output.data for step in steps if step.HasField("output"))
    assert b"[1/2]" in output
    told = await run(hand, "get-structured-content", location="New York")
    assert "temperature" in told.content
    assert tools.keys() >= {"echo", "get-tiny-image"}
