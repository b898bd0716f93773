"""The house itself: links lead somewhere, scripts can be run, no file outgrows one idea."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAX_LINES = 500
WRITTEN = {".py", ".sh", ".toml", ".yaml", ".yml", ".html", ".css", ".js", ""}
"""Suffixes of what people write as code; scripts have none."""
NOT_BY_HAND = ("carpal/v1/", "carpal/rpc/", "LICENSE")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def tracked() -> list[Path]:
    """What git keeps or would keep, as paths in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    paths = (Path(name) for name in listed.stdout.split("\0") if name)
    return [path for path in paths if (ROOT / path).is_file()]


def test_every_relative_link_in_the_docs_resolves() -> None:
    broken = [
        f"{page}: {target}"
        for page in tracked()
        if page.suffix == ".md"
        for target in LINK.findall((ROOT / page).read_text())
        if not re.match(r"[a-z]+:|#", target)
        and not (ROOT / page.parent / target.split("#")[0]).exists()
    ]
    assert broken == []


def test_every_script_is_executable_and_says_what_runs_it() -> None:
    scripts = [path for path in tracked() if path.parts[0] in {"scripts", ".ci"}]
    assert scripts
    for path in scripts:
        assert os.access(ROOT / path, os.X_OK), f"{path} is not executable"
        first = (ROOT / path).read_text().splitlines()[0]
        assert first in {"#!/bin/sh", "#!/usr/bin/env bash"}, f"{path} starts with {first!r}"


def test_no_file_holds_the_marks_of_a_conflict() -> None:
    marks = tuple(f"\n{mark * 7} ".encode() for mark in "<>")
    left = [str(path) for path in tracked() if any(m in (ROOT / path).read_bytes() for m in marks)]
    assert left == []


def test_no_hand_written_file_is_longer_than_one_idea() -> None:
    # The contract is left out: one file a service, most of it tables of errors.
    lengths = {
        str(path): (ROOT / path).read_bytes().count(b"\n")
        for path in tracked()
        if path.suffix in WRITTEN and not str(path).startswith(NOT_BY_HAND)
    }
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}
