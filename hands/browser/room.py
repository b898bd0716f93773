"""How much room there is for what pages keep: the profile is on a disk of its own.

Full is full for every page. So when there is little left, what takes most of it is removed, and the
model is told whose that was. Cookies and local storage stay, which are small: who is signed in is.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from hands.browser import state
from hands.browser.chromium import CDPSession, Error
from hands.browser.pages import bounded

LITTLE = 8
"""One part of so many, when no more is left."""
_ENOUGH = 4
_KINDS = "appcache,cache_storage,file_systems,indexeddb,service_workers,shader_cache,websql"
_STEP = 2.0
"""Seconds for the browser to say what a site keeps, or to begin to remove it."""
_MOST = 10.0
"""Seconds for all of it: the call that waits for it is done."""
_LOOK, _LOOKS = 0.05, 60
"""Seconds between looks whether what was removed is gone from the disk, and how many."""
_MIB = 1024 * 1024


class Room:
    """Of one browser."""

    def __init__(self, home: Path) -> None:
        """`home` is on the disk on which the profile is."""
        self._home = home

    @property
    def little(self) -> bool:
        """Nearly nothing is left."""
        return self._has_less(LITTLE)

    async def made(self, sites: Iterable[str], sessions: Iterable[CDPSession]) -> list[str]:
        """Make some where there is little; what is to be said of that.

        `sites` are origins of pages; of the `sessions` the first that answers is asked.
        """
        if not self.little:
            return []
        size = f"{_whole(self._home) // _MIB} MiB"
        said: list[str] = []
        with contextlib.suppress(TimeoutError):  # what was removed until then is said
            async with asyncio.timeout(_MOST):
                await self._remove(sites, sessions, size, said)
        if self.little:
            said.append(
                f"[the browser's disk of {size} is nearly full: pages can keep no more. Close "
                "tabs, or release the hand and have another]"
            )
        return said

    async def _remove(
        self, sites: Iterable[str], sessions: Iterable[CDPSession], size: str, said: list[str]
    ) -> None:
        for site, kept in await _largest(sites, sessions):
            if not self._has_less(_ENOUGH):
                return
            if await _removed(site, sessions):
                shown = state.one_line(site, 200)
                said.append(
                    f"[the browser's disk of {size} was nearly full: what {shown} kept there, "
                    f"{kept // _MIB} MiB, was removed, but for its sign-ins]"
                )
                await self._gone()

    async def _gone(self) -> None:
        for _ in range(_LOOKS):
            if not self._has_less(_ENOUGH):
                return
            await asyncio.sleep(_LOOK)  # nothing tells when it is

    def _has_less(self, part: int) -> bool:
        disk = os.statvfs(self._home)
        return disk.f_bavail * part < disk.f_blocks


async def _largest(sites: Iterable[str], sessions: Iterable[CDPSession]) -> list[tuple[str, int]]:
    """The sites that keep something, with the bytes of it, most first."""
    found = []
    for site in sites:
        for session in sessions:
            try:
                async with bounded(_STEP):
                    told = await session.send("Storage.getUsageAndQuota", {"origin": site})
            except Error:
                continue
            found.append((site, int(told.get("usage", 0))))
            break
    return sorted((each for each in found if each[1] > 0), key=lambda each: -each[1])


async def _removed(site: str, sessions: Iterable[CDPSession]) -> bool:
    given = {"origin": site, "storageTypes": _KINDS}
    for session in sessions:
        try:
            async with bounded(_STEP):
                await session.send("Storage.clearDataForOrigin", given)
        except Error:
            continue
        return True
    return False


def _whole(home: Path) -> int:
    disk = os.statvfs(home)
    return disk.f_blocks * disk.f_frsize
