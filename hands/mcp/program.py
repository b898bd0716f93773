"""The program of an MCP server, and lines to and from it.

It is over when it ends, whoever still holds what it wrote to; when it closes what it writes to;
or when a line of it is too long to be a message. What it writes on its standard error is kept:
the last of it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from hands.mcp.said import MOST

_TAIL = 4096
"""Bytes of its standard error."""
_READ = 64 * 1024
_PIPE = 1024 * 1024
"""Bytes that a pipe holds at most."""
_ABOUT_TO_END = 0.2
"""Seconds for who closes what it writes to, to end too: then that is why."""
_ENDS = ((None, 1.5), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.3))
"""What makes it end, its input being closed first, and seconds for each."""


class Program:
    """One, and what its group is."""

    def __init__(self, over: Callable[[str], None]) -> None:
        """`over` is told once nothing more is to come of it, and why."""
        self._over = over
        self.tail = bytearray()
        self._came = bytearray()
        self._looked = 0
        """Bytes of that in which there is no line's end."""
        self._last = b""
        """What was still in its pipe when it ended."""
        self._ended = asyncio.Event()
        self._writing = asyncio.Lock()
        self._held = contextlib.ExitStack()

    async def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it. Raises OSError."""
        output, theirs = os.pipe()
        errors, their_errors = os.pipe()
        self._held.callback(os.close, errors)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=theirs,
                stderr=their_errors,
                env=env,
                start_new_session=True,
            )
        except BaseException:
            os.close(output)
            self._held.close()
            raise
        finally:
            os.close(theirs)
            os.close(their_errors)
        assert self._process.stdin is not None
        self._input = self._process.stdin
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=_READ)
        self._output, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(output, "rb", 0)
        )
        self._held.callback(self._output.close)
        self._take_errors(errors)
        self._see_its_end(output)

    async def line(self) -> bytes:
        """The next, without its end; empty when there is no more, which `over` was told."""
        while True:
            end = self._came.find(b"\n", self._looked)
            if end >= 0:
                line = bytes(self._came[:end])
                del self._came[: end + 1]
                self._looked = 0
                if line.strip():
                    return line
                continue
            self._looked = len(self._came)
            if self._looked > MOST:
                self._came.clear()
                self._over(f"it wrote a line of more than {MOST} bytes")
                return b""
            data = await self._reader.read(_READ)
            if not data:
                data, self._last = self._last, b""
            if not data:
                self._over(await self._how_it_ended())
                return b""
            self._came += data
            await asyncio.sleep(0)  # a flood of lines is not all turns

    async def write(self, line: bytes) -> None:
        """Say a line to it. Raises OSError when it reads no more, which `over` was told."""
        try:
            async with self._writing:
                self._input.write(line + b"\n")
                await self._input.drain()
        except OSError:
            self._over("it ended" if self._ended.is_set() else "it closed its standard input")
            raise

    async def end(self) -> None:
        """End it, and all of its group, within the time that there is."""
        self._input.close()
        draining = asyncio.create_task(self._drain())
        try:
            for number, seconds in _ENDS:
                if number is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(self._process.pid, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._ended.wait()
                        await self._process.wait()  # whoever reaps it tells a moment later
                        return
        finally:
            draining.cancel()
            self._held.close()

    async def _drain(self) -> None:
        """Who writes its last is not to wait for a reader."""
        while await self._reader.read(_READ):
            pass

    async def _how_it_ended(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ABOUT_TO_END):
                await self._ended.wait()
                return "it ended"
        return "it closed its standard output"

    def _see_its_end(self, output: int) -> None:
        """Also where another process has its pipes, which then never end."""
        loop = asyncio.get_running_loop()

        def over() -> None:
            with contextlib.suppress(BlockingIOError):
                # What it wrote is there; not all that another may yet write.
                if not self._output.is_closing():
                    self._last = os.read(output, _PIPE)
            self._output.close()
            self._ended.set()

        try:
            handle = os.pidfd_open(self._process.pid)
        except ProcessLookupError:  # and reaped
            over()
            return

        def ended() -> None:
            loop.remove_reader(handle)
            over()

        loop.add_reader(handle, ended)
        self._held.callback(os.close, handle)
        self._held.callback(loop.remove_reader, handle)

    def _take_errors(self, errors: int) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(errors, False)

        def take() -> None:
            with contextlib.suppress(BlockingIOError):
                if data := os.read(errors, _READ):
                    self.tail += data
                    del self.tail[:-_TAIL]
                else:
                    loop.remove_reader(errors)

        loop.add_reader(errors, take)
        self._held.callback(loop.remove_reader, errors)
        self._held.callback(take)
