"""The `carpal` command as a child process, whether or not the project is installed.

Commands are found by entry point, so a checkout that is not installed gets the
entry points of its `pyproject.toml` from a folder on the child's path.
"""

import asyncio
import os
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from carpal.process import interpreter
from hands.local.notes import PLACE
from tests.pace import SCALE

ROOT = Path(__file__).parent.parent
SECONDS = 20.0 * SCALE
"""How long a command may take; on a loaded machine starting Python alone takes one."""


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int
    stdout: str
    stderr: str


class Command:
    """Runs `carpal` with one environment."""

    def __init__(self, scratch: Path, environ: Mapping[str, str] | None = None) -> None:
        self.environ = {
            **{
                key: value
                for key, value in os.environ.items()
                if key == PLACE or not key.startswith("CARPAL_")
            },
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(_metadata(scratch)), str(ROOT), os.environ.get("PYTHONPATH")))
            ),
            "PYTHONUNBUFFERED": "1",
            "XDG_CACHE_HOME": str(scratch / "cache"),
            **(environ or {}),
        }

    async def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        """Run it to its end."""
        async with self.start(*arguments) as process, asyncio.timeout(SECONDS):
            stdout, stderr = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Ended(process.returncode, stdout.decode(), stderr.decode())

    @asynccontextmanager
    async def start(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run it beside the test; killed if it outlives the block."""
        process = await asyncio.create_subprocess_exec(
            *interpreter(),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environ,
            cwd=ROOT,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            # Reads what is left, so that no pipe outlives the loop.
            async with asyncio.timeout(SECONDS):
                await process.communicate()


def _metadata(scratch: Path) -> Path:
    folder = scratch / "metadata"
    info = folder / "carpal-0.dist-info"
    if not info.exists():
        info.mkdir(parents=True)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        groups = project["entry-points"]
        lines = [
            line
            for group, entries in groups.items()
            for line in (f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carpal\nVersion: 0\n")
    return folder
