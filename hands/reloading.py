"""SIGHUP: what may change while the daemon runs is read anew."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

from carpal.errors import CarpalError
from hands.managed import Managed

log = logging.getLogger(__name__)

T = TypeVar("T")


class Reloading(Generic[T]):
    """Reads the settings and tells those who use them."""

    def __init__(self, read: Callable[[], T]) -> None:
        """`read` gives the settings; what it refuses is logged, and those there were stay."""
        self._read = read
        self._asked = asyncio.Event()
        self.hooks: list[Callable[[T], Awaitable[None] | None]] = []
        """Each is told the settings. What one refuses is logged, and the others are told."""
        self.always: list[Callable[[], Awaitable[None] | None]] = []
        """What is read from files of its own: also where the settings are wrong."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGHUP, which else ends a process, while the block lasts."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._asked.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def run(self, managed: Managed) -> None:
        """Reload whenever it is asked for, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            managed.reloading()
            await self._reload()
            managed.ready()

    async def _reload(self) -> None:
        hooks: list[Callable[[], Awaitable[None] | None]] = []
        failed = 0
        try:
            settings = self._read()
            hooks = [partial(hook, settings) for hook in self.hooks]
        except CarpalError as error:
            failed += 1
            log.error("settings not reloaded, those there were stay", extra={"why": str(error)})
        for hook in (*hooks, *self.always):
            try:
                done = hook()
                if done is not None:
                    await done
            except CarpalError as error:
                failed += 1
                log.error("not reloaded, what there was stays", extra={"why": str(error)})
        if failed:
            log.warning("reloaded but for what is said above", extra={"failed": failed})
        else:
            log.info("reloaded")
