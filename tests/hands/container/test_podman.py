"""Rootless Podman, by its Docker-compatible socket, for a daemon of the same ordinary user."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import images, podman
from tests.pace import SCALE

_REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_ordinary_user_has_hands_on_rootless_podman_and_a_limit_it_cannot_keep_is_refused() -> (
    None
):
    if why := podman.missing():
        pytest.skip(why)
    with podman.podman() as engine:
        images.add_shell(engine.client)
        # The user may read all files: this Python may be in a folder of root's.
        reads = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
        command = [
            *("setpriv", "--reuid", str(engine.uid), "--regid", str(engine.uid), "--clear-groups"),
            *(*reads, sys.executable, "-m", "tests.hands.container.ordinary"),
            *(engine.url, str(engine.folder / "state")),
        ]
        ran = subprocess.run(
            command,
            cwd=_REPOSITORY,
            env={**os.environ, "HOME": str(engine.folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=200 * SCALE,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        told = json.loads(ran.stdout)
        assert told["ready"]
        assert told["said"] == f"hand\n{engine.uid}\nhi\n"
        assert told["confined"] == "CapBnd:\t0000000000000000\n"
        assert "Read-only" in told["root"]
        assert told["owner"] == engine.uid
        assert "runs as the daemon's own user, as all its hands do" in told["not_enforced"]
        if "memory_bytes" in told["cannot"]:  # control groups of version 1, or not delegated
            assert told["refused"] == ["LIMIT_NOT_ENFORCEABLE", "limits.memory_bytes"]
            assert "no limit on memory_bytes and processes" in told["not_enforced"]
        assert told["released"]
        assert told["left"] == []
        assert engine.containers() == [], ran.stderr
