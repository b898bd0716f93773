"""A daemon as it was: the tree of an older commit, and how to run it beside today's brain.

The commit must be in the clone: `git clone --depth` has too little of it.
"""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

OLDEST = "380dcba"
"""The oldest daemon that today's brain is held to. Nothing is released yet, so it stands for one:
the last commit before hands got sandboxes, containers and mounts, when the daemon had process hands
with calls that outlive it, and none of what the contract got since. Once there are releases, it is
the oldest tag of the last twelve months."""


def tree(commit: str, into: Path) -> Path:
    """The files of a commit, with the metadata by which its commands are found.

    Skips the test where the clone does not have it; in CI that is a failure.
    """
    git = shutil.which("git")
    if git is None or not _has(git, commit):
        pytest.skip(f"needs git and the commit {commit}: clone with all of its history")
    into.mkdir(parents=True)
    archive = subprocess.run(
        [git, "-C", str(ROOT), "archive", commit, "carpal", "hands", "pyproject.toml"],
        check=True,
        capture_output=True,
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive, check=True)
    _write_metadata(into)
    return into


def environ(folder: Path) -> dict[str, str]:
    """The environment in which `python -m carpal` is that tree's."""
    return {"PYTHONPATH": os.pathsep.join((str(folder / "metadata"), str(folder)))}


def _has(git: str, commit: str) -> bool:
    asked = [git, "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, check=False, capture_output=True).returncode == 0


def _write_metadata(folder: Path) -> None:
    """So that its commands are its own, whatever is installed beside."""
    info = folder / "metadata" / "carpal-0.dist-info"
    info.mkdir(parents=True)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carpal\nVersion: 0\n")
