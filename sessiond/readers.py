"""Reading beside the writer: a few threads, each read on its own read-only view."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from sessiond.store import Reader, Store

T = TypeVar("T")

THREADS = 4
"""Reads wait for the disk more than for a core; more of them would only contend."""


class Readers:
    """A pool of views. Its methods belong to the event loop."""

    def __init__(self, store: Store, threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="reader")
        self._views: list[Reader] = [store.reader() for _ in range(threads)]
        self._free: SimpleQueue[Reader] = SimpleQueue()
        for view in self._views:
            self._free.put(view)

    async def run(self, read: Callable[[Reader], T]) -> T:
        """The answer of `read`, which gets a view for its own."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._with_view, read)

    async def close(self) -> None:
        """Finish the reads that run, then let go."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        for view in self._views:
            view.close()

    def _with_view(self, read: Callable[[Reader], T]) -> T:
        view = self._free.get()
        try:
            return read(view)
        finally:
            self._free.put(view)
