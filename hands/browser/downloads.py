"""What pages download: into the workspace, and as attachments where they are small enough.

A hand whose config does not allow downloads cancels each, and says so.
"""

import asyncio
import contextlib
import itertools
import mimetypes
import re
from pathlib import Path
from typing import Any

from hands.api import Context, ToolError
from hands.attachments import BYTES_MAX
from hands.browser.chromium import Download, Error

SIZE_MAX = 64 * 1024 * 1024
"""Bytes of one that is kept."""
_LIMIT = 300.0
"""Seconds for one."""
_SOON = 1.0
"""Seconds that a call waits for one that it began: most are done in less."""
_WAITING_MAX = 20
_NAME = re.compile(r"[^A-Za-z0-9._-]+")

Json = dict[str, Any]


class Downloads:
    """Those of one browser."""

    def __init__(self, workspace: Path, allowed: bool) -> None:
        self._folder = workspace / "downloads"
        self._allowed = allowed
        self._numbers = itertools.count(1)
        self._running: set[asyncio.Task[None]] = set()
        self._changes: list[Json] = []
        self._done: list[Path] = []

    def begun(self, download: Download) -> None:
        """A page began one."""
        task = asyncio.get_running_loop().create_task(self._take(download))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def settled(self, context: Context) -> list[Json]:
        """What became of them since this was asked last; what is done is attached."""
        if self._running:
            await asyncio.wait(self._running, timeout=_SOON)
        for path in self._done:
            with contextlib.suppress(ToolError, OSError):  # it is in the workspace all the same
                if path.stat().st_size <= BYTES_MAX:
                    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
                    context.attach(path.read_bytes(), kind, path.name)
        self._done.clear()
        changes, self._changes = self._changes, []
        return changes

    async def _take(self, download: Download) -> None:
        about = {"download_id": f"d{next(self._numbers)}", "url": download.url}
        try:
            why = await self._saved(download, about)
        except Error as error:
            why = error.message.splitlines()[0][:200]
        if why:
            self._changes.append({"type": "download_failed", **about, "error": why})

    async def _saved(self, download: Download, about: Json) -> str:
        """Why it was not; empty when it was."""
        if not self._allowed:
            await download.cancel()
            return "downloads are off in this hand: `allow` in its config turns them on"
        if len(self._running) > _WAITING_MAX:
            await download.cancel()
            return f"more than {_WAITING_MAX} downloads at once"
        self._changes.append({"type": "download_started", **about})
        try:
            async with asyncio.timeout(_LIMIT):
                failed = await download.failure()
                found = await download.path() if not failed else None
        except TimeoutError:
            await download.cancel()
            return f"it took longer than {_LIMIT:g} s"
        if failed or found is None:
            return failed or "it is not there"
        size = found.stat().st_size
        if size > SIZE_MAX:
            await download.delete()
            return f"it has {size} bytes, more than {SIZE_MAX}"
        self._folder.mkdir(exist_ok=True)
        path = self._place(download.suggested_filename)
        await download.save_as(path)
        await download.delete()
        self._done.append(path)
        self._changes[:] = [
            each for each in self._changes if each.get("download_id") != about["download_id"]
        ]
        told = {"path": f"{self._folder.name}/{path.name}", "size_bytes": size}
        self._changes.append({"type": "download_completed", **about, **told})
        return ""

    def _place(self, suggested: str) -> Path:
        """Where it goes: a name that a page says is no path."""
        name = _NAME.sub("_", suggested).lstrip(".")[-100:] or "download"
        path = self._folder / name
        for number in itertools.count(2):
            if not path.exists():
                return path
            path = self._folder / f"{number}-{name}"
        raise AssertionError("there is always another number")
