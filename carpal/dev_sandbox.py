"""Whether `carpal dev` says that its hands need no sandbox: as root, where none can be made.

Elsewhere a daemon that is root refuses such hands until its owner says so. Whoever runs
`carpal dev` tries Carpal out on their own machine, and is told.
"""

import asyncio
import os
import shutil
from collections.abc import Mapping

_LIMIT = 10.0
"""Seconds for a trial; it takes a fiftieth of one."""
_TRIAL = ("--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true")


async def none_because(environ: Mapping[str, str]) -> str:
    """Why hands get none, to be said; empty where the daemon is to find out by itself."""
    if os.geteuid() != 0 or environ.get("CARPAL_SANDBOX", "auto") != "auto":
        return ""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    process = await asyncio.create_subprocess_exec(
        *("bwrap", *_TRIAL),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_LIMIT):
            await process.wait()
    except TimeoutError:
        return ""  # not known: the daemon says so
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return "bubblewrap does not work here" if process.returncode else ""
