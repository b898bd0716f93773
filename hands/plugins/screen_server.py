"""A hand's screen, for a person who watches it or has control: beside its calls, in its process.

Whoever serves a person in the hand (`hands/inside/person_view.py`) connects to a socket in the
hand's folder and says which of the two it is. Nothing is drawn while nobody watches. A person's
control waits for the call that still runs, and ends before the next one begins.
"""

import asyncio
import contextlib
import inspect
import os
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from hands import controls
from hands.api import ToolError
from hands.inside import person_view, view_frames
from hands.inside import tunnel_frames as frames

PERIOD = 0.2
"""Seconds between two pictures at least."""
LIMIT = 5.0
"""Seconds for an `async` method to give a picture, or to do what a person does."""
LETTING_GO = 5.0
"""Seconds for all that is down when control ends to be let go of."""
_FIRST = 5.0
"""Seconds to say which of the two it is."""
_PEOPLE_MAX = 64
"""At once: as many as its supervisor lets in. One more is closed, for any process may connect."""
_WAITING_MAX = 256
"""Events that wait for a call to end; more end the person's control."""
_WORDS_MAX = 1000
_LETTERS = {media_type: letter for letter, media_type in view_frames.PICTURES.items()}


class ScreenServer:
    """Of one hand. All of it is on the loop on which the hand's calls run."""

    def __init__(self, hand: Any, calls: asyncio.Lock) -> None:
        """`calls` is held while a call runs."""
        self._hand = hand
        self._calls = calls
        self._server: asyncio.Server | None = None
        self._having: set[asyncio.Task[None]] = set()
        """Control, which may be cancelled."""
        self._controlling: set[asyncio.Task[None]] = set()
        """The same with its end, which may not: what is down is let go of."""
        self._people: set[asyncio.Task[None]] = set()

    async def open(self, folder: Path) -> None:
        """Listen in the hand's folder. A hand whose class has no screen does not."""
        if not callable(getattr(self._hand, "view", None)):
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A socket's address holds 107 bytes; through a descriptor any path is short.
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{handle}/{person_view.SOCKET}")
        finally:
            os.close(handle)
        self._server = await asyncio.start_unix_server(self._connected, sock=listener)

    async def end_control(self) -> None:
        """Let go of all that is down: a call begins, so nobody has control any more."""
        for task in self._having:
            task.cancel()
        if self._controlling:
            await asyncio.wait(self._controlling)

    async def close(self) -> None:
        """The hand ends: nobody is let in any more, and who is in is out."""
        if self._server is not None:
            self._server.close()
        tasks = self._people | self._having | self._controlling
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._people) >= _PEOPLE_MAX:
            writer.close()
            return
        _kept(self._people, self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        person = _Person(reader, writer)
        try:
            which = await person.first()
            if which == person_view.CONTROLS and hasattr(self._hand, "control"):
                await asyncio.wait({_kept(self._controlling, self._controlled(person))})
            elif which == person_view.WATCHES:
                await self._watch(person)
        except ConnectionError:
            pass  # they left
        finally:
            await person.close()

    # Watching.

    async def _watch(self, person: "_Person") -> None:
        person.listen((view_frames.SEEN,))
        shown, words = b"", ""
        while not person.gone:
            try:
                picture = await self._picture()
            except ValueError as error:
                if str(error) != words:  # said once
                    words = str(error)
                    await person.say(words)
            else:
                words = ""
                if picture != shown:
                    shown = picture
                    await person.show(picture)
                    await person.event()
            await person.pause(PERIOD)

    async def _picture(self) -> bytes:
        """How it looks now, as a frame. ValueError: why it cannot be shown."""
        given = await self._asked(self._hand.view)
        match given:
            case (bytes() as data, str() as media_type) if media_type in _LETTERS:
                return view_frames.framed(_LETTERS[media_type], data)
        raise ValueError(f"its `view` gave no pair of bytes and {' or '.join(_LETTERS)}")

    # Control.

    async def _controlled(self, person: "_Person") -> None:
        """Control, and then its end: also where a call that begins has cut the control short."""
        downs = controls.Downs()
        await asyncio.wait({_kept(self._having, self._control(person, downs))})
        with contextlib.suppress(TimeoutError):  # nobody is there who could be told
            async with asyncio.timeout(LETTING_GO):
                for event in downs.ups():
                    with contextlib.suppress(ValueError):
                        await self._asked(self._hand.control, event)

    async def _control(self, person: "_Person", downs: controls.Downs) -> None:
        person.listen((view_frames.EVENT,))
        with contextlib.suppress(ConnectionError):  # they left
            while (said := await person.event()) is not None:
                async with self._calls:
                    if person.gone:
                        return  # while a call still ran
                    try:
                        event = controls.read(said)
                        downs.note(event)
                        await self._asked(self._hand.control, event)
                    except ValueError as error:
                        await person.say(str(error))

    async def _asked(self, method: Callable[..., Any], *given: Any) -> Any:
        """What a method gives. ValueError in its words, whatever it raises."""
        try:
            async with asyncio.timeout(LIMIT):
                found = method(*given)
                return await found if inspect.isawaitable(found) else found
        except TimeoutError:
            raise ValueError(f"it took more than {LIMIT:g} s") from None
        except Exception as error:
            kind = "" if isinstance(error, ToolError) else f"{type(error).__name__}: "
            raise ValueError(f"{kind}{error}"[:_WORDS_MAX]) from error


def _kept(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that is one of these while it runs."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


class _Person:
    """Their end, as the process in the hand passes it on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._came: deque[bytes] = deque()
        self._change = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.gone = False
        """They left, or sent what is not understood."""

    async def first(self) -> bytes:
        """The one byte they begin with; none of who says nothing for too long."""
        reading = asyncio.create_task(self._reader.read(1))
        done, _ = await asyncio.wait({reading}, timeout=_FIRST)
        if done:
            return reading.result()
        reading.cancel()
        await asyncio.wait({reading})
        return b""

    def listen(self, kinds: tuple[bytes, ...]) -> None:
        """Take such frames from now on, and notice when they leave."""
        self._reading = asyncio.create_task(self._read(view_frames.Parser(kinds)))

    async def _read(self, parser: view_frames.Parser) -> None:
        try:
            while data := await self._reader.read(64 * 1024):
                self._came.extend(data for _, data in parser.feed(data))
                if len(self._came) > _WAITING_MAX:
                    break
                self._change.set()
        except (ConnectionError, ValueError):
            pass  # what follows cannot be understood either
        finally:
            self.gone = True
            self._change.set()

    async def event(self) -> bytes | None:
        """What they sent next; None once they are gone."""
        while not self._came and not self.gone:
            self._change.clear()
            await self._change.wait()
        return None if self.gone else self._came.popleft()

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until they are gone."""
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=seconds)

    async def show(self, frame: bytes) -> None:
        """Send a picture. Waits while they take no more."""
        await self._write(frames.framed(frames.DATA, frame))

    async def say(self, words: str) -> None:
        """Say something in words, a line."""
        line = f"{words}\n".encode("utf-8", "replace")
        await self._write(frames.framed(frames.ERROR, line))

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """Be done with them."""
        self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
