"""When `carpal dev` says by itself that hands need no sandbox."""

import os
from pathlib import Path

import pytest

from carpal import dev_sandbox
from hands.isolation import probe

root = pytest.mark.skipif(os.geteuid() != 0, reason="root's hands alone are asked about")


@root
async def test_as_root_without_bubblewrap_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await dev_sandbox.none_because({}) == "bubblewrap is not installed; install it"


@root
async def test_one_that_cannot_make_a_sandbox_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = await dev_sandbox.none_because({})
    assert said == "bubblewrap does not work here: no such luck"


@root
async def test_what_is_said_is_what_the_daemon_itself_would_find(tmp_path: Path) -> None:
    assert await dev_sandbox.none_because({}) == probe.problem()
    with pytest.MonkeyPatch.context() as patched:
        # A sandbox of bubblewrap's that lacks what ours needs is none: one rule for both.
        program = tmp_path / "bwrap"
        program.write_text("#!/bin/sh\ncase $1 in --args) exit 7 ;; esac\nexit 0\n")
        program.chmod(0o755)
        patched.setenv("PATH", str(tmp_path))
        assert probe.problem() == await dev_sandbox.none_because({}) != ""


async def test_what_its_owner_says_of_the_sandbox_is_left_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for word in ("off", "required"):
        assert await dev_sandbox.none_because({"CARPAL_SANDBOX": word}) == ""
