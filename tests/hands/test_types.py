"""The hand types that a machine has: ours are loaded, what others wrote is not."""

import logging
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hands import types
from hands.builtin.plugin import PluginType
from hands.builtin.process import ProcessType

GROUP = "carpal.hand_types"


def registered(monkeypatch: pytest.MonkeyPatch, **entries: str) -> None:
    found = [EntryPoint(name, value, GROUP) for name, value in entries.items()]
    monkeypatch.setattr(types, "entry_points", lambda group: found)


def test_what_others_wrote_is_imported_in_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks_it.py").write_text("import os\nos._exit(9)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registered(monkeypatch, lamp="breaks_it:Lamp", process="hands.builtin.process:ProcessType")
    found = types.installed("off")
    assert isinstance(found["lamp"], PluginType)
    assert isinstance(found["process"], ProcessType)
    assert "breaks_it" not in sys.modules


def test_nobody_takes_the_name_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = [
        EntryPoint("process", "better:Process", GROUP),
        EntryPoint("process", "hands.builtin.process:ProcessType", GROUP),
    ]
    monkeypatch.setattr(types, "entry_points", lambda group: found)
    with caplog.at_level(logging.WARNING):
        assert isinstance(types.installed("off")["process"], ProcessType)
    assert "two hand types have one name" in caplog.text
