"""The example is a hand type that keeps the contract, found by its entry point."""

import asyncio
import json
import os
import shlex
from pathlib import Path

import pytest

from tests.command import ROOT, Command
from tests.hands.plugins.found import installed
from tests.pace import SCALE

HERE = ROOT / "examples" / "02_write_a_hand_type"
PAGE = ROOT / "docs" / "how-to" / "write-a-hand-type.md"


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_the_example_passes_every_check_that_it_claims(tmp_path: Path) -> None:
    command = Command(tmp_path)
    command.environ["PYTHONPATH"] += os.pathsep + installed(HERE, tmp_path)
    (line,) = [each for each in PAGE.read_text().splitlines() if "check --type ledger" in each]
    _, *arguments = shlex.split(line, comments=True)
    flags = ("--scale", str(2 * SCALE), "--json")
    async with command.start(*arguments, *flags) as process, asyncio.timeout(110 * SCALE):
        stdout, stderr = await process.communicate()
    assert stdout, stderr.decode()
    *verdicts, summary = [json.loads(line) for line in stdout.splitlines()]
    assert [one for one in verdicts if one["verdict"] == "fail"] == []
    assert (process.returncode, stderr) == (0, b"")
    assert summary["pass"] >= 20
