"""What a sandbox is made of, as far as it is told without one."""

import shutil
from pathlib import Path

import pytest

from hands.isolation import bwrap


def test_what_runs_inside_is_compiled_before_it_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(bwrap.__file__).parents[1] / "inside", tmp_path / "inside", ignore=ignored)
    monkeypatch.setattr(bwrap, "_HANDS", tmp_path)
    bwrap.compile_code()
    names = {file.stem for file in tmp_path.glob("inside/*.py")}
    assert {file.name.partition(".")[0] for file in tmp_path.glob("inside/*/*.pyc")} == names
    (tmp_path / "inside/__pycache__").rename(tmp_path / "gone")
    (tmp_path / "inside/__pycache__").touch()  # it cannot be written down: no hand fails for that
    bwrap.compile_code()
