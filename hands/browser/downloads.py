"""What pages download: into the workspace, and as attachments where they are small enough.

A hand whose config does not allow downloads cancels each, and says so. The browser writes each to
the hand's own memory, where all are weighed while they come; one that is whole, and no more than
there is room for, is put into the workspace.
"""

import asyncio
import contextlib
import itertools
import mimetypes
import os
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hands.api import Context, ToolError
from hands.attachments import BYTES_MAX
from hands.browser import state
from hands.browser.chromium import Download, Error
from hands.browser.weighed import ALL_MAX, LIMIT, SIZE_MAX, TOO_MUCH, Weighed

_SOON = 1.0
"""Seconds that a call waits for one that it began: most are done in less."""
_WAITING_MAX = 20
FILES_MAX = 1000
"""Of a hand's in the workspace at a time: a page may begin ten in a second, for days."""
_LINES_MAX = 10
"""Of those that were not attached."""
_NAME = re.compile(r"[^A-Za-z0-9._-]+")

Json = dict[str, Any]


class Downloads:
    """Those of one browser."""

    def __init__(
        self, workspace: Path, coming: Path, cancel: Callable[[str], Awaitable[None]] | None
    ) -> None:
        """They come to the folder `coming`; `cancel` stops one by its name there.

        None for a hand that has none.
        """
        self._folder = workspace / "downloads"
        self._allowed = cancel is not None
        self._weighed = Weighed(coming, lambda: self.bytes_kept, cancel or _nothing)
        self._saving = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._running: set[asyncio.Task[None]] = set()
        self._changes: list[Json] = []
        """The newest since this was asked last: pages do not wait until it is."""
        self._done: list[Path] = []
        self._kept: set[Path] = set()

    def begun(self, download: Download) -> None:
        """A page began one."""
        task = asyncio.get_running_loop().create_task(self._take(download))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    @property
    def bytes_kept(self) -> int:
        """Of those that are in the workspace still."""
        size = 0
        for path in tuple(self._kept):
            try:
                size += path.lstat().st_size
            except OSError:
                self._kept.discard(path)
        return size

    async def settled(self, context: Context) -> tuple[list[Json], list[str]]:
        """What became of them since this was asked last, and lines about it.

        What is done is attached.
        """
        if self._running:
            await asyncio.wait(self._running, timeout=_SOON)
        lines: list[str] = []
        for path in self._done:
            try:
                if path.stat().st_size <= BYTES_MAX:
                    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
                    context.attach(path.read_bytes(), kind, path.name)
            except (ToolError, OSError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                lines.append(f"[{self._folder.name}/{path.name} was not attached: {why}]")
        self._done.clear()
        if more := len(lines[_LINES_MAX:]):
            lines[_LINES_MAX:] = [f"[and {more} more were not attached]"]
        changes, self._changes = self._changes, []
        return changes, lines

    async def _take(self, download: Download) -> None:
        url = download.url[: state.URL_MAX + 1]  # one more than is told, so that a cut shows
        about = {"download_id": f"d{next(self._numbers)}", "url": url}
        try:
            async with self._weighed.coming():
                why = await self._saved(download, about)
        except Error as error:
            why = error.message.splitlines()[0][:200]
        except OSError as error:
            why = f"it could not be put into the workspace: {error.strerror}"
        finally:
            with contextlib.suppress(Error):
                await download.delete()
        if why:
            self._happened("download_failed", **about, error=why)

    async def _saved(self, download: Download, about: Json) -> str:
        """Why it was not; empty when it was."""
        if not self._allowed:
            await download.cancel()
            return "downloads are off in this hand: `allow` in its config turns them on"
        if len(self._running) > _WAITING_MAX:
            await download.cancel()
            return f"more than {_WAITING_MAX} downloads at once"
        self._happened("download_started", **about)
        try:
            async with asyncio.timeout(LIMIT):
                failed = await download.failure()
                found = await download.path() if not failed else None
        except TimeoutError:
            await download.cancel()
            return f"it took longer than {LIMIT:g} s"
        if failed == "canceled":
            return self._weighed.why()
        if failed or found is None:
            return failed or "it is not there"
        async with self._saving:
            # It may have been whole before it was weighed.
            size = found.stat().st_size
            if size > SIZE_MAX or self.bytes_kept + size > ALL_MAX:
                return f"it has {size} bytes: {TOO_MUCH}"
            if len(self._kept) >= FILES_MAX:
                return f"there are {FILES_MAX} of this hand's in the workspace: have some removed"
            path = await asyncio.to_thread(self._put, found, download.suggested_filename)
            self._kept.add(path)
        self._done.append(path)
        self._changes[:] = [
            each for each in self._changes if each.get("download_id") != about["download_id"]
        ]
        place = f"{self._folder.name}/{path.name}"
        self._happened("download_completed", **about, path=place, size_bytes=size)
        return ""

    def _happened(self, kind: str, **about: Any) -> None:
        self._changes.append({"type": kind, **about})
        del self._changes[: -state.CHANGES_MAX]

    def _put(self, found: Path, suggested: str) -> Path:
        """Put it where it belongs, or nothing. Raises OSError."""
        self._folder.mkdir(exist_ok=True)
        path = self._place(suggested)
        with found.open("rb") as file, path.open("xb") as made:
            try:
                shutil.copyfileobj(file, made)
            except OSError:
                path.unlink()
                raise
        return path

    def _place(self, suggested: str) -> Path:
        """Where it goes: a name that a page says is no path."""
        name = _NAME.sub("_", suggested).lstrip(".")[-100:] or "download"
        path = self._folder / name
        for number in itertools.count(2):
            if not os.path.lexists(path):
                return path
            path = self._folder / f"{number}-{name}"
        raise AssertionError("there is always another number")


async def _nothing(_: str) -> None:
    """Where each is cancelled when it begins."""
