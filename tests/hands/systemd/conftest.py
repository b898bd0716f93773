"""A systemd for tests that need one to ask, on a machine that none runs."""

import os
from pathlib import Path

import pytest

from hands.systemd.systemctl import Systemd


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    """A systemd that runs the machine: its command is ours, and writes down what it is told."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "systemctl"
    script.write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/told\n'
        f"case $1 in is-active) cat {tmp_path}/active 2>/dev/null || echo inactive ;; "
        f"start|restart) echo active >{tmp_path}/active ;;"
        f" disable) rm -f {tmp_path}/active ;; esac\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return Systemd(booted=tmp_path)
