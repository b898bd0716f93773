"""A reader of a page: a folder of their own, and a shell in which they type what it says.

`carpal`, `python` and `pip` are those of an environment that is theirs, as after
`pip install carpal`. What pip is asked for and is here already it finds here; the rest it would
need a registry for.
"""

import asyncio
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.command import Command
from tests.pace import SCALE

_PROGRAM = '#!/bin/sh\nexec "{python}" -P -m {module} "$@"\n'


class Reader:
    """One reader."""

    def __init__(self, scratch: Path, environ: Mapping[str, str] | None = None) -> None:
        self.folder = scratch / "reader"
        self.folder.mkdir(parents=True)
        programs = _environment(scratch / "environment")
        self.environ = {
            **Command(scratch, {"CARPAL_STATE": str(scratch / "state")}).environ,
            "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # which is how pip spells that it is so
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
            "PYTHONDONTWRITEBYTECODE": "1",
            **(environ or {}),
        }

    def write(self, name: str, text: str) -> Path:
        """A file of theirs."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def types(self, lines: str, *, before: tuple[str, ...] = ()) -> str:
        """What lines say on standard output, one after the other, as long as each goes well."""
        done = subprocess.run(
            [*before, "sh", "-euc", lines],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=200 * SCALE,
        )
        assert done.returncode == 0, (lines, done.stdout, done.stderr)
        return done.stdout

    @asynccontextmanager
    async def runs_dev(self, line: str) -> AsyncIterator[None]:
        """A `carpal dev` that keeps running in another terminal, until Ctrl-C."""
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f"exec {line}"),
            cwd=self.folder, env=self.environ, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            async with asyncio.timeout(60 * SCALE):
                while b"Ctrl-C ends it all" not in (said := await process.stdout.readline()):
                    assert said, "it ended"
            yield
        finally:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60 * SCALE):
                await process.communicate()


def _environment(folder: Path) -> Path:
    """Where the programs of a Python environment are that has all that is installed here."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60 * SCALE
    )
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name, module in (("carpal", "carpal"), ("pip", "pip")):
        program = folder / "bin" / name
        program.write_text(_PROGRAM.format(python=python, module=module))
        program.chmod(0o755)
    return folder / "bin"
