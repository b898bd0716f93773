"""Whether `carpal dev` says that its hands need no sandbox: as root, where none can be made.

Elsewhere a daemon that is root refuses such hands until its owner says so. Whoever runs
`carpal dev` tries Carpal out on their own machine, and is told. Whether one can be made, the
daemon's own rule says, asked as a process: `carpal hand sandbox`.
"""

import asyncio
import os
from collections.abc import Mapping

from carpal import process

NONE = "none: "
"""How the answer begins where no sandbox can be made; then why, and what to do about it."""
_LIMIT = 20.0
"""Seconds for the answer; it takes half of one."""


async def none_because(environ: Mapping[str, str]) -> str:
    """Why hands get none, to be said; empty where the daemon is to find out by itself."""
    if os.geteuid() != 0 or environ.get("CARPAL_SANDBOX", "auto") != "auto":
        return ""
    asked = await asyncio.create_subprocess_exec(
        *(*process.interpreter(), "hand", "sandbox"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_LIMIT):
            said, _ = await asked.communicate()
    except TimeoutError:
        return ""  # not known: the daemon says so
    finally:
        if asked.returncode is None:
            asked.kill()
            await asked.wait()
    line = said.decode("utf-8", "replace").strip()
    return line.removeprefix(NONE) if line.startswith(NONE) else ""
