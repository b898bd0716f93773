"""Whether hands get a sandbox: not known is no answer, and root runs none by mistake."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin.process import ProcessType
from hands.isolation import probe
from tests.hands.place import open_place
from tests.hands.test_service import provision, refused


def test_a_mistyped_word_is_refused() -> None:
    with pytest.raises(ValueError, match="requierd"):
        ProcessType(sandbox="requierd")


async def test_a_machine_too_slow_to_try_a_sandbox_makes_no_hand_without_one_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception] = [OSError("no memory"), subprocess.TimeoutExpired("bwrap", 10)]

    def tried() -> subprocess.CompletedProcess[bytes]:
        if answers:
            raise answers.pop()
        return subprocess.CompletedProcess([], 1, b"", b"it is not allowed")

    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/bin/{name}")
    monkeypatch.setattr(probe, "_try", tried)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    kind = ProcessType()
    async with open_place(tmp_path / "state", process=kind) as place:
        assert "isolated" not in kind.describe().capabilities
        error = await refused(place.service.provision(provision(place, "h")))
        assert "could not be tried" in error.message
        assert not answers
        health = await place.service.probe(pb.ProbeRequest(type="process"))
        assert health.state == pb.PROBE_STATE_READY, "it was asked again, and there is an answer"


async def test_root_runs_no_hand_without_a_sandbox_unless_that_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "problem", lambda: "bubblewrap is not installed; install it")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    async with open_place(tmp_path / "state", process=ProcessType()) as place:
        health = await place.service.probe(pb.ProbeRequest(type="process"))
        assert health.state == pb.PROBE_STATE_BROKEN
        error = await refused(place.service.provision(provision(place, "h")))
        assert "sandbox = off" in error.message
