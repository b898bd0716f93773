"""The folder to which downloads come, weighed while any do: what is too much is stopped."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

SIZE_MAX = 64 * 1024 * 1024
"""Bytes of one download."""
ALL_MAX = 256 * 1024 * 1024
"""Bytes of all of a hand's that are there or on their way."""
LIMIT = 300.0
"""Seconds for one."""
_EVERY = 0.1
_MIB = 1024 * 1024
TOO_MUCH = (
    f"one may have at most {SIZE_MAX // _MIB} MiB, and all that this hand downloaded and that are "
    f"in the workspace still {ALL_MAX // _MIB} MiB"
)


class Weighed:
    """One browser's."""

    def __init__(
        self, folder: Path, kept: Callable[[], int], cancel: Callable[[str], Awaitable[None]]
    ) -> None:
        """`kept` says the bytes of what is there; `cancel` stops the download of that id."""
        self._folder = folder
        self._kept = kept
        self._cancel = cancel
        self._coming = 0
        self._stopped: set[str] = set()
        self._untold = 0
        self._watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def coming(self) -> AsyncIterator[None]:
        """A download is, throughout the block."""
        self._coming += 1
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            self._coming -= 1
            if not self._coming:
                self._watching.cancel()
                self._watching = None

    def why(self) -> str:
        """Why one was cut off, of which the browser says no more than that."""
        if self._untold:
            self._untold -= 1
            return f"it was stopped: {TOO_MUCH}"
        return "it was cut off: its server ended it, or there is no room for it"

    async def _watch(self) -> None:
        while True:
            for name in self._too_much():
                self._stopped.add(name)
                self._untold += 1
                await self._cancel(name)
            await asyncio.sleep(_EVERY)  # nothing tells how much came

    def _too_much(self) -> list[str]:
        """The ids of those to stop: what is too large, and the largest until all have room."""
        sizes: dict[str, int] = {}
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                if found.st_mtime < time.time() - LIMIT:
                    path.unlink()  # what was cut off long ago may be left
                elif path.stem not in self._stopped:
                    sizes[path.stem] = found.st_size
        over = sum(sizes.values()) + self._kept() - ALL_MAX
        stop = []
        for name, size in sorted(sizes.items(), key=lambda each: -each[1]):
            if size > SIZE_MAX or over > 0:
                stop.append(name)
                over -= size
        return stop
