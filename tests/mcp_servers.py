"""MCP servers of others, as people use them: each in an environment of its own, made once.

They are below /usr/local, where hands in a sandbox see programs. Who may not write there, or
reaches no registry, skips: in CI that is a failure.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

FOLDER = Path("/usr/local/lib/carpal-test-mcp-servers")
PYTHON = {"git": "mcp-server-git==2026.10.19", "time": "mcp-server-time==2026.10.19"}
NODE = {
    "filesystem": "@modelcontextprotocol/server-filesystem@2026.8.31",
    "everything": "@modelcontextprotocol/server-everything@2026.8.31",
    "playwright": "@playwright/mcp@0.0.83",
}
PROGRAMS = {
    **{name: f"@modelcontextprotocol/server-{name}/dist/index.js" for name in NODE},
    "playwright": "@playwright/mcp/cli.js",
}
"""Of those in Node.js, below node_modules."""
_LIMIT = 240.0
"""Seconds to install one."""


def command(name: str) -> list[str]:
    """What starts a server, in a sandbox too; made first, if need be."""
    wanted = PYTHON.get(name) or NODE[name]
    place = FOLDER / name
    try:
        FOLDER.mkdir(exist_ok=True)
        with (FOLDER / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = place / "made"
            if not made.exists() or made.read_text() != wanted:
                shutil.rmtree(place, ignore_errors=True)
                _install(name, wanted, place)
                made.write_text(wanted)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{wanted} is not there: {error}")
    if name in PYTHON:
        return [f"{place}/bin/mcp-server-{name}"]
    return ["node", f"{place}/node_modules/{PROGRAMS[name]}"]


def _install(name: str, wanted: str, place: Path) -> None:
    if name in PYTHON:
        venv.create(place, with_pip=True, symlinks=True)
        _run(f"{place}/bin/python", "-m", "pip", "install", "--quiet", wanted)
    else:
        if shutil.which("npm") is None:
            raise OSError("npm is not installed")
        place.mkdir()
        _run(
            "npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), wanted
        )


def _run(*line: str) -> None:
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=_LIMIT, check=False, env=_environment()
    )
    if done.returncode:
        raise OSError(f"{line[0]} failed: {done.stderr[-500:]}")


def _environment() -> dict[str, str]:
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    return {name: text for name, text in os.environ.items() if name not in ours} | {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHON": sys.executable,
        "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1",
    }
