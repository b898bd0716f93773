"""When `carpal dev` says by itself that hands need no sandbox."""

import os
from pathlib import Path

import pytest

from carpal import dev_sandbox

root = pytest.mark.skipif(os.geteuid() != 0, reason="root's hands alone are asked about")


@root
async def test_as_root_without_bubblewrap_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await dev_sandbox.none_because({}) == "bubblewrap is not installed"


@root
async def test_one_that_cannot_make_a_sandbox_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await dev_sandbox.none_because({}) == "bubblewrap does not work here"


async def test_what_its_owner_says_of_the_sandbox_is_left_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for word in ("off", "required"):
        assert await dev_sandbox.none_because({"CARPAL_SANDBOX": word}) == ""
