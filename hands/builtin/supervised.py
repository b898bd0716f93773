"""A hand that runs under `hands/supervisor.py`: the daemon's end of its socket.

For every hand type whose environment can hold a supervisor. The connection is
the hand: when it ends and nobody asked for that, the hand is lost. Who is at
the other end the kernel says, not the other end: its pid means nothing outside
a namespace, and what runs in the hand may listen there in its place.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hands.builtin import entering, passing, said, supervisor_socket
from hands.contract import Call, EnterFailed, Entrance, HandLost, Inside, Placing, Result, Step
from hands.forwarder.rules import parse
from hands.forwarder.server import Forwarder
from hands.inside import tree
from hands.inside.call import TIME_LIMIT

log = logging.getLogger(__name__)

_HELLO_LIMIT = 5.0
"""Seconds for a supervisor to say hello: it may be sweeping a tree just then."""
_END_LIMIT = 7.0
"""Seconds for a supervisor to kill all and end; a sweep gives up after 5."""
_REASON_MAX = 500
"""Characters of why a supervisor ended, as it says."""
_NOT_AT_ONCE = 0.005
"""Seconds after which a supervisor hears that it may forget a result; a daemon that dies before
leaves that to the next."""
_FLUSH_LIMIT = 1.0
"""Seconds for a supervisor to read what it was last told."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """How a supervisor that is stopped or hangs is noticed; seconds."""

    every: float = 5.0
    """Between questions whether it lives."""
    limit: float = 15.0
    """For an answer; it may be sweeping a tree just then."""
    tries: int = 2
    """Questions unanswered in a row: the first limit may have passed while this daemon was
    stopped itself."""


PULSE = Pulse()


@dataclass(slots=True)
class _Steps:
    """What was said of one call."""

    waiting: said.Waiting = field(default_factory=said.Waiting)
    change: asyncio.Event = field(default_factory=asyncio.Event)


class SupervisedHand:
    """One hand, over one connection to its supervisor."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hello: said.Hello,
        pid: int,
        pulse: Pulse,
    ) -> None:
        """Use `connect`."""
        self.pid = pid
        """Of the process that listens, as this machine counts."""
        self.start = tree.start_time(pid)
        self.quiet = hello.quiet
        self.folder = Path()
        """The hand's own."""
        self.disk_bytes = 0
        """Its limit; 0 for none."""
        self.forwarder: Forwarder | None = None
        """Its way out, which ends with this connection."""
        self._held = hello.calls
        self._forgettable: list[str] = []
        """Calls whose results the supervisor may forget, and was not told so yet."""
        self._answers = hello.answers
        self._left: dict[str, asyncio.Future[str]] = {}
        """Of each tunnel, set once all of it is over: to a problem, if there was one."""
        self._reader = reader
        self._writer = writer
        self._steps: dict[str, _Steps] = {call_id: _Steps() for call_id in self._held}
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._detached = False
        self._heard = asyncio.Event()
        """Something came since this was cleared."""
        self._tasks = [asyncio.create_task(self._read())]
        if "ping" in hello.answers:  # one of an earlier version does not
            self._tasks.append(asyncio.create_task(self._watch(pulse)))

    @classmethod
    async def connect(
        cls, folder: Path, pulse: Pulse = PULSE, known: tuple[int, int] | None = None
    ) -> "SupervisedHand":
        """The hand whose supervisor listens in `folder`. Raises HandLost.

        `known` is its pid and start time, if it is known: no other is listened to.
        """
        try:
            async with asyncio.timeout(_HELLO_LIMIT):
                connected, pid = supervisor_socket.connected(folder)
                if known and (pid, tree.start_time(pid)) != known:
                    connected.close()
                    raise HandLost("another supervisor listens in its place")
                reader, writer = await asyncio.open_unix_connection(sock=connected)
                try:
                    hello = said.hello(await supervisor_socket.frame(reader, said.HELLO_MAX))
                except BaseException:
                    writer.transport.abort()
                    raise
                hand = cls(reader, writer, hello, pid, pulse)
                hand.folder = folder
                return hand
        except ValueError as error:
            raise HandLost(f"its supervisor said what is not understood: {error}") from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise HandLost("no supervisor listens in its folder") from error
        except TimeoutError as error:
            raise HandLost("its supervisor does not answer") from error

    @property
    def held(self) -> frozenset[str]:
        """Calls it held at the connection."""
        return self._held

    async def execute(self, call: Call) -> AsyncIterator[Step]:
        """Run a call."""
        self._steps[call.call_id] = _Steps()
        self._say(
            op="run",
            call_id=call.call_id,
            tool=call.tool,
            input=dict(call.input),
            limit=call.within(_own_limit(call)),
        )
        async for step in self.attach(call.call_id):
            yield step

    async def attach(self, call_id: str) -> AsyncIterator[Step]:
        """What a call gave since the connection, and gives."""
        steps = self._steps[call_id]
        try:
            while True:
                steps.change.clear()
                step = steps.waiting.take()
                if step is None and self._lost.done():
                    raise HandLost(self._lost.result())
                if step is None:
                    await steps.change.wait()
                    continue
                yield step
                if isinstance(step, Result):
                    return
        finally:
            self._steps.pop(call_id, None)

    async def cancel(self, call_id: str, grace: float) -> None:
        """TERM, then KILL."""
        self._say(op="cancel", call_id=call_id, grace=grace)

    async def acknowledge(self, call_id: str) -> None:
        """The supervisor may forget the result. Who waits for the result comes first."""
        self._forgettable.append(call_id)
        if len(self._forgettable) == 1:
            asyncio.get_running_loop().call_later(_NOT_AT_ONCE, self._say)

    async def place(self, placing: Placing, data: AsyncIterator[bytes]) -> str:
        """Put something into the workspace. A repository's host may be reached meanwhile."""
        with ExitStack() as allowed:
            if self.forwarder and placing.url:
                host = {"host": urlsplit(placing.url).netloc}
                allowed.enter_context(self.forwarder.also(parse([host], "mounts")))
            return await passing.place(self, self.folder, placing, data)

    async def save(self, take: Callable[[bytes], Awaitable[None]]) -> str:
        """The workspace as a tar."""
        most = passing.save_max(self.disk_bytes)
        return await passing.save(self, self.folder, passing.bounded(take, most))

    @asynccontextmanager
    async def enter(self, entrance: Entrance) -> AsyncIterator[Inside]:
        """A process beside the calls."""
        needed = "view" if entrance.kind in ("view", "control") else "enter"
        if needed not in self._answers:
            raise EnterFailed("its supervisor is of an earlier version; release the hand")
        left: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._left[entrance.tunnel_id] = left
        try:
            async with entering.enter(self.folder, entrance, self._say, left, self._lost) as inside:
                yield inside
        finally:
            del self._left[entrance.tunnel_id]

    async def contact(self) -> None:
        """Start the orphan deadline over."""
        self._say(op="contact")

    async def wait_lost(self) -> str:
        """The reason, once it died by itself."""
        return await asyncio.shield(self._lost)

    async def release(self) -> None:
        """Have it kill all and end, and wait for that; HandLost when it does not."""
        self._detached = True
        self._say(op="end")
        try:
            ended, _ = await asyncio.wait({self._tasks[0]}, timeout=_END_LIMIT)
            if not ended:
                raise HandLost("its supervisor does not end")
        finally:
            await self._close()
            self._wake("it was released")  # who waits for a call, as a save does

    async def detach(self) -> None:
        """Leave it running."""
        self._detached = True
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self.forwarder:
            await self.forwarder.close()
        self._writer.close()
        try:
            async with asyncio.timeout(_FLUSH_LIMIT):
                await self._writer.wait_closed()
        except ConnectionError:
            return  # it was gone already
        except TimeoutError:
            self._writer.transport.abort()

    def _say(self, **message: Any) -> None:
        """Say it, after what it may forget: who asks for that again gets the same answer always."""
        said = [{"op": "forget", "call_id": call_id} for call_id in self._forgettable]
        self._forgettable.clear()
        said += [message] if message else []
        # To a lost hand this says nothing; whoever waits learns of the loss.
        if said and not self._writer.is_closing():
            self._writer.write(b"".join(map(supervisor_socket.framed, said)))

    async def _read(self) -> None:
        reason = "its supervisor died"
        try:
            while True:
                event = await supervisor_socket.frame(self._reader)
                self._heard.set()
                if event.get("event") == "ended":
                    reason = str(event.get("reason"))[:_REASON_MAX]
                self._take(event)
                await asyncio.sleep(0)  # a flood of small frames is one hand's turn, not all turns
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the end of the stream is the end of the supervisor
        except ValueError as error:
            reason = f"its supervisor said what is not understood: {error}"
        except Exception as error:  # whatever it was: no call on this hand would ever end
            log.exception("a supervisor was not understood", extra={"folder": str(self.folder)})
            reason = f"what its supervisor said could not be taken: {type(error).__name__}"
        self._lose(reason)

    async def _watch(self, pulse: Pulse) -> None:
        """Lose a supervisor that says nothing: no call on it would ever end."""
        missed = 0
        while missed < pulse.tries:
            await asyncio.sleep(0 if missed else pulse.every)
            self._heard.clear()
            self._say(op="ping")
            try:
                async with asyncio.timeout(pulse.limit):
                    await self._heard.wait()
                missed = 0
            except TimeoutError:
                missed += 1
        self._lose(f"its supervisor did not answer for {pulse.limit * pulse.tries:g} s")

    def _lose(self, reason: str) -> None:
        if not self._detached:
            self._wake(reason)

    def _wake(self, reason: str) -> None:
        """No call on it goes on: who waits for one learns that."""
        if not self._lost.done():
            self._lost.set_result(reason)
        for steps in self._steps.values():
            steps.change.set()

    def _take(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "left":
            left = self._left.get(str(event.get("tunnel_id")))
            if left is not None and not left.done():
                left.set_result(str(event.get("problem") or "")[:_REASON_MAX])
        steps = self._steps.get(str(event.get("call_id")))
        if steps is not None and (step := said.step(event)) is not None:
            steps.waiting.put(step)
            steps.change.set()


def _own_limit(call: Call) -> float:
    """Seconds that its tool would take at most."""
    asked = call.input.get("timeout_ms")
    return asked / 1000 if isinstance(asked, int | float) and asked > 0 else TIME_LIMIT
