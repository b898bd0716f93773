"""The MCP hand is held to the contract by the very checks that anyone's type is."""

import asyncio
import json
from pathlib import Path

import pytest

from tests import mcp_servers
from tests.hands.conformance.test_cli import checked
from tests.hands.mcp.conftest import PROBLEM


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
