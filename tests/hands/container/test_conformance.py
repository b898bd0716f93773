"""The container hand is held to the contract by the very checks that anyone's type is."""

import json
import os
import subprocess
import sys

import pytest

from tests import images
from tests.engine import Engine
from tests.hands.conformance.test_cli import page_line
from tests.pace import SCALE


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_passes_every_check_of_what_it_claims_and_leaves_no_container(engine: Engine) -> None:
    line = [each.replace("debian:12", images.SHELL) for each in page_line("--type container")]
    told = subprocess.run(
        [
            *(sys.executable, "-m", "carpal", "hand", "check", "--json", "--scale", str(SCALE)),
            *line,
        ],
        env={**os.environ, "DOCKER_HOST": engine.url},
        capture_output=True,
        text=True,
        timeout=560 * SCALE,
        check=False,
    )
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line for line in lines if line.get("verdict") == "fail"] == []
    assert told.returncode == 0, told.stderr
    skipped = {line["capability"] for line in lines if line.get("verdict") == "skipped"}
    unclaimed = {"visual", "view", "control", "events", "units", "lists_tools"}
    assert skipped <= unclaimed, "what it does not claim"
    assert not engine.containers()
