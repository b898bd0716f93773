"""Reading beside the writer: a few threads, each read on its own read-only view.

A read that fails harms its caller alone: other sessions may be whole, and the writer
finds out for itself whether it can go on.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from carpal.errors import invalid, refuse
from carpal.status import Reason
from sessiond.store import (
    REJECTED,
    Reader,
    Store,
    StoreBroken,
    StoreCorrupt,
    StoreFull,
    StoreRejects,
    StoreUnavailable,
)

_log = logging.getLogger(__name__)

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
        """The answer of `read`, which gets a view for its own.

        DATA_CORRUPT, STORE_FULL, UNAVAILABLE or INTERNAL when the store fails.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._with_view, read)

    async def close(self) -> None:
        """Finish the reads that run, then let go."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        for view in self._views:
            view.close()

    def _with_view(self, read: Callable[[Reader], T]) -> T:
        view = self._free.get()
        try:
            return self._read(view, read)
        except StoreCorrupt as error:
            _log.error("a read met damage", extra={"problem": str(error)})
            raise refuse(Reason.DATA_CORRUPT, str(error)) from error
        except StoreFull as error:
            raise refuse(Reason.STORE_FULL, "the disk that holds the sessions is full") from error
        except StoreUnavailable as error:
            raise refuse(Reason.UNAVAILABLE, "the store does not answer") from error
        except StoreRejects as error:
            raise invalid("text", REJECTED) from error
        except StoreBroken as error:
            _log.error("a read failed", extra={"problem": str(error)})
            raise refuse(Reason.INTERNAL, str(error)) from error
        finally:
            self._free.put(view)

    @staticmethod
    def _read(view: Reader, read: Callable[[Reader], T]) -> T:
        try:
            return read(view)
        except StoreUnavailable as error:
            # A view that lost its store while it lay idle finds out only when it is used.
            _log.info("a read is tried again", extra={"problem": str(error)})
            return read(view)
