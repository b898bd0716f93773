"""`carpal hand view`: a person watches a hand's screen in their browser, and may take control.

Watching is one tunnel, and control another one beside it, for as long as they have it: so the log
says of each when it began and ended, and it ends however this command does.
"""

import asyncio
import webbrowser
from contextlib import nullcontext, suppress

import click

from carpal.errors import CarpalError, refuse
from carpal.operator.connection import Found
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from hands import controls
from hands.inside import view_frames
from hands.visit import terminal
from hands.visit.entering import Visit, Way, entered
from hands.visit.view_opening import leading
from hands.visit.view_page import serving
from hands.visit.view_state import Screen, picture

_EVENTS_MAX = 64
"""Events that wait to be sent; then moves of the pointer are left out, and the rest waits."""
_TAKING = 5.0
"""Seconds for a hand to take what is done, when so much waits already."""
_GIVING_BACK = 10.0
"""Seconds for the hand to let go of what is down."""
_SILENCE = 15.0
"""Seconds without a word of the page, after which it is taken to be closed: control ends."""
_LAST_WORDS = 2.0
"""Seconds for the page to hear that it is over."""


async def view(found: Found, session_id: str, hand: str, *, opens: bool) -> int:
    """Serve the page until the tunnel ends, or a signal or a cancel does; the exit code."""
    task = asyncio.current_task()
    ended: list[int] = []

    def ends(number: int) -> None:
        ended.append(number)
        if task is not None:
            task.cancel()

    with terminal.signals(ends=ends, resized=None):
        try:
            return await _view(found, session_id, hand, opens=opens)
        except asyncio.CancelledError:
            if not ended:
                raise
            return 128 + ended[0]


async def _view(found: Found, session_id: str, hand: str, *, opens: bool) -> int:
    opening = pb.EnterOpen(session_id=session_id, hand=hand, kind="view")
    async with entered(found, opening) as (way, visit):
        watching = Watching(way, visit, session_id)
        async with serving(watching) as page:
            click.echo(page.address)
            click.echo(
                f"watching hand {visit.opened.hand} ({visit.opened.hand_id}) on "
                f"{visit.opened.daemon_id}; the address opens once; Ctrl-C ends it",
                err=True,
            )
            with leading(page.address) if opens else nullcontext() as url:
                if url is not None:
                    await asyncio.to_thread(webbrowser.open, url)
                words = await watching.run()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WORDS):
                        await page.heard_the_end.wait()
    click.echo(f"carpal: {words or 'the hand ended it'}", err=True)
    return 1


class Watching:
    """One person who watches one hand."""

    def __init__(self, way: Way, visit: Visit, session_id: str) -> None:
        self.screen = Screen(visit.opened.hand)
        self._way = way
        self._visit = visit
        self._session_id = session_id
        self._seen = asyncio.Event()
        self._events: asyncio.Queue[controls.Event] | None = None
        """Those of the control that they have: none of it may come out in a later one."""
        self._controlling: asyncio.Task[None] | None = None
        self._control: Visit | None = None
        self._heard = asyncio.Event()

    async def run(self) -> str:
        """Until the hand, its owner or the way there ends it: why."""
        watching = asyncio.create_task(self._watch())
        seeing = asyncio.create_task(self._tell_seen())
        listening = asyncio.create_task(self._listen())
        tasks = {watching, seeing, listening}
        try:
            await asyncio.wait({watching})
            words = watching.result()
            self.screen.end(words)
            return words
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._drop()

    # What the page does.

    def seen(self) -> None:
        """It has the newest picture: the hand may send the next."""
        self._seen.set()

    def heard(self) -> None:
        """The page is there."""
        self._heard.set()

    async def take(self) -> None:
        """Take control, unless they have it or it is being taken."""
        if self._controlling is None or self._controlling.done():
            self._controlling = asyncio.create_task(self._have_control())

    async def give_back(self) -> None:
        """Give it back; at the end of this the calls go on."""
        task = self._controlling
        if task is None or task.done():
            return
        if self._control is not None:
            await self._control.end()
            await asyncio.wait({task}, timeout=_GIVING_BACK)
        await self._drop()

    async def do(self, event: controls.Event) -> None:
        """Send what they do. What is done without control is passed over.

        Raises CarpalError when the hand does not take it in time, or control ended meanwhile.
        """
        events = self._events
        if events is None:
            return
        move = isinstance(event, controls.Pointer) and event.action == "move"
        if move and events.full():
            return
        try:
            async with asyncio.timeout(_TAKING):
                await events.put(event)
        except TimeoutError:
            raise refuse(
                Reason.UNAVAILABLE,
                "the hand does not take what is done",
                action="take control again",
            ) from None

    # The tunnels.

    async def _watch(self) -> str:
        parser = view_frames.Parser(view_frames.PICTURES)
        try:
            async for said in self._visit.came():
                if said.HasField("end"):
                    return terminal.plain(said.end.problem)
                if said.error:
                    self._say(said.error)
                for letter, data in parser.feed(said.data):
                    self.screen.show(picture(letter, data))
        except CarpalError as error:
            return str(error)
        except ValueError as error:
            return f"what the hand shows is not understood: {error}"
        return ""

    async def _tell_seen(self) -> None:
        while True:
            await self._seen.wait()
            self._seen.clear()
            await self._visit.send(view_frames.framed(view_frames.SEEN))

    async def _have_control(self) -> None:
        opening = pb.EnterOpen(
            session_id=self._session_id,
            hand=self._visit.opened.hand_id,
            kind="control",
            take=True,
        )
        words = ""
        try:
            async with self._way.enter(opening) as visit:
                self._control = visit
                events: asyncio.Queue[controls.Event] = asyncio.Queue(_EVENTS_MAX)
                self._events = events
                running = ", ".join(visit.opened.running_call_ids)
                self.screen.set(
                    control=True, words=f"waiting for a call to end: {running}" if running else ""
                )
                sending = asyncio.create_task(self._send(visit, events))
                try:
                    async for said in visit.came():
                        if said.error:
                            self._say(said.error)
                        words = terminal.plain(said.end.problem)
                finally:
                    sending.cancel()
                    await asyncio.wait({sending})
        except CarpalError as error:
            words = str(error)
        finally:
            self._control = self._events = None
            self.screen.set(control=False, words=words)

    async def _send(self, visit: Visit, events: asyncio.Queue[controls.Event]) -> None:
        while True:
            event = await events.get()
            data = controls.encoded(event)
            await visit.send(view_frames.framed(view_frames.EVENT, data))

    async def _listen(self) -> None:
        """A page that says nothing any more has no control."""
        while True:
            self._heard.clear()
            try:
                async with asyncio.timeout(_SILENCE):
                    await self._heard.wait()
            except TimeoutError:
                await self.give_back()

    async def _drop(self) -> None:
        if (task := self._controlling) is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})

    def _say(self, words: bytes) -> None:
        last = words.decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2]
        self.screen.set(words=terminal.plain(last))
