"""The person's terminal: raw while they are in a hand, and as it was before whatever happens."""

import asyncio
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_READ = 64 * 1024
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What would end this process and leave the terminal raw."""
ESCAPED = "?"


def is_one() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def size() -> tuple[int, int]:
    """Rows and columns."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return max(rows, 1), max(columns, 1)


def plain(text: str) -> str:
    """What a hand said, without what a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else ESCAPED for c in text)


@contextmanager
def raw() -> Iterator[None]:
    """Keys go as they are while the block lasts, Ctrl-C among them."""
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        tty.setraw(handle)
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


@contextmanager
def signals(*, ends: Callable[[int], None], resized: Callable[[], None] | None) -> Iterator[None]:
    """Have `ends` told of what would end this process, and `resized` of another size."""
    loop = asyncio.get_running_loop()
    numbers = [*_ENDS]
    for number in _ENDS:
        loop.add_signal_handler(number, ends, int(number))
    if resized is not None:
        numbers.append(signal.SIGWINCH)
        loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class Keys:
    """Standard input, read by a thread of its own: whatever it is, reading it may wait for ever."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._came: asyncio.Queue[bytes] = asyncio.Queue(1)
        # Nobody waits for it at the end: it ends with the process.
        threading.Thread(target=self._read, name="keys", daemon=True).start()

    async def next(self) -> bytes:
        """What came; nothing at the end."""
        return await self._came.get()

    def _read(self) -> None:
        data = b"-"
        # The loop may be over by then.
        with suppress(RuntimeError, asyncio.CancelledError, OSError):
            while data:
                data = os.read(sys.stdin.fileno(), _READ)
                putting = self._came.put(data)
                try:
                    asyncio.run_coroutine_threadsafe(putting, self._loop).result()
                finally:
                    putting.close()


async def show(handle: int, data: bytes) -> None:
    """Write all of it, where it may take long."""
    if data:
        await asyncio.to_thread(_write, handle, data)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
