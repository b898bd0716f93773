"""The MCP hand is held to the contract by the very checks that anyone's type is."""

import asyncio
import json
from pathlib import Path

import pytest

from tests import mcp_servers
from tests.engine import Engine
from tests.hands.conformance.test_cli import checked
from tests.hands.mcp.conftest import PROBLEM, SERVER, Servers, in_container


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)
async def test_it_passes_every_check_of_what_it_claims(tmp_path: Path) -> None:
    command = await asyncio.to_thread(mcp_servers.command, "everything")
    plain = ("--call", "echo", '{"message": "hello"}')
    long = ("--long", "trigger-long-running-operation", '{"duration": 300, "steps": 300}')
    config = json.dumps({"command": command})
    flags = ("--type", "mcp", "--hand-config", config, *plain, *long, "--scale", "3")
    code, (*verdicts, _), stderr = await checked(tmp_path, *flags)
    assert [one for one in verdicts if one["verdict"] == "fail"] == []
    assert (code, stderr) == (0, "")
    made = {one["capability"] for one in verdicts if one["verdict"] == "pass"}
    assert made == {"contract", "lists_tools"}


@in_container
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_in_a_container_it_passes_them_too_and_leaves_none(
    servers: Servers, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    given = json.loads(servers.order().config)
    # In no folder of the machine's: what a hand is given of its own is checked too.
    del given["workspace"]
    given["command"] = [*given["command"][:-1], "-c", SERVER.read_text()]
    config = json.dumps(given)
    plain, long = ("--call", "add", '{"a": 1, "b": 2}'), ("--long", "slow", "{}")
    flags = ("--type", "mcp", "--hand-config", config, *plain, *long, "--scale", "3")
    code, (*verdicts, _), stderr = await checked(tmp_path, *flags)
    assert [one for one in verdicts if one["verdict"] == "fail"] == []
    assert code == 0, stderr
    assert not engine.containers()
