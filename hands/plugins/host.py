"""The process of one hand whose type is a class of `hands/api.py`: the only one its code runs in.

`python -P -m hands.plugins.host run MODULE:CLASS FD FOLDER HAND OWN UNIT` serves the supervisor at
the other end of the socket FD, in frames as the supervisor's own: `call {call_id, tool, input,
limit}`, `cancel {call_id}`, `release`; answered by `{call_id, outcome, content, attachments}`,
content null when the output is the result, and with `began` false when nothing of the call
happened. A hand that is lost says so also unasked, with an empty
call_id. HAND is for people who look at ps. In a sandbox, whose
workspace is not in the hand's folder, `OWN` after it is that folder; else it is empty. UNIT is the
id of the hand's unit, where its type has units.

Calls run in the main thread, one at a time. Another thread reads what the supervisor says, so that
a call that never gives way can be cancelled. A class of ours is `async` and needs none: each word
would wake two threads.
"""

import asyncio
import inspect
import json
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from hands import described
from hands.api import Cancelled, Context, HandLost, HandType, ToolError
from hands.hints import signature
from hands.inside.output import Capture
from hands.plugins.hosted import Hosted, NotBegun
from hands.plugins.loading import brief, kind_of, load
from hands.plugins.screen_server import ScreenServer

PROVISION = ".provision"
"""The call that makes the hand; no tool has such a name."""
_CANCEL = signal.SIGUSR1
_LENGTH = struct.Struct(">I")
_READ = 256 * 1024
_NAME_MAX, _KIND_MAX = 255, 127

Answer = dict[str, Any]


def main() -> None:
    """See above."""
    target, fd = sys.argv[2], int(sys.argv[3])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
    own, unit = (*sys.argv[6:], "", "")[:2]
    folder = Path(sys.argv[4])
    Host(target, socket.socket(fileno=fd), folder, Path(own) if own else None, unit).run()


class Host:
    """One hand."""

    def __init__(
        self,
        target: str,
        line: socket.socket,
        folder: Path,
        own: Path | None = None,
        unit: str = "",
    ) -> None:
        self._target = target
        self._unit = unit
        line.set_inheritable(False)
        self._line = line
        self._came = bytearray()
        self._folder = folder
        self._own = own
        self._asked: asyncio.Queue[Answer] = asyncio.Queue()
        self._hand: HandType | None = None
        self._screen: ScreenServer | None = None
        self._calls = asyncio.Lock()
        """Held while a call runs: what a person does waits for it."""
        self._main = threading.get_ident()
        # What the other thread sees of the call that runs.
        self._context: Context | None = None
        self._task: asyncio.Task[Any] | None = None
        self._interruptible = False
        self._loop = asyncio.new_event_loop()
        self._cancelled: set[str] = set()

    def run(self) -> None:
        """Serve until released, or until the supervisor is gone."""
        asyncio.set_event_loop(self._loop)
        signal.signal(_CANCEL, self._interrupt)
        self._loop.add_reader(self._line, self._hear)  # until it is known what it runs
        self._loop.run_until_complete(self._serve())
        os._exit(0)  # whatever threads it started

    async def _serve(self) -> None:
        while True:
            # On the loop goes on between calls what the hand began.
            message = await self._asked.get()
            if message["op"] == "release":
                await self._release()
                return
            if self._screen is not None:
                await self._screen.end_control()
            async with self._calls:
                answer = await self._answer(message)
            if message["tool"] == PROVISION and answer["outcome"] == "ok":
                self._screen = ScreenServer(self._hand, self._calls)
                await self._screen.open(self._own or self._folder.parent)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            self._say({"call_id": message["call_id"], **answer})
            if answer["outcome"] == "lost":
                await self._release()
                return

    async def _answer(self, message: Answer) -> Answer:
        context = Context(self._folder, message["call_id"], message["limit"])
        if self._own:
            context.own = self._own
        context.unit = self._unit
        try:
            self._context = context
            if context.call_id in self._cancelled:
                raise Cancelled
            given = await self._call(message["tool"], message["input"], context)
            answer = _told(given)
        except (Cancelled, asyncio.CancelledError, KeyboardInterrupt):
            answer = _failed("cancelled", "")
        except HandLost as error:
            answer = _failed("lost", brief(error, plain=True) or "its tool says that it is gone")
            if isinstance(error, NotBegun):
                answer["began"] = False
        except ToolError as error:
            answer = _failed("error", brief(error, plain=True) or "the tool failed")
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises, its call failed
            traceback.print_exc()
            what = "provision" if message["tool"] == PROVISION else "the tool"
            answer = _failed("error", f"{what} failed: {brief(error)}")
        finally:
            self._interruptible = False
            self._context = self._task = None
        return {**answer, "attachments": [_attached(*each) for each in context.attached]}

    async def _call(self, name: str, given: Answer, context: Context) -> Any:
        if name == PROVISION:
            kind = load(self._target)
            os.chdir(self._folder)
            self._hand = kind()
            if isinstance(self._hand, Hosted):
                self._hand.lose = self._lose
                return await self._run(self._hand.make, config=given, context=context)
            self._loop.remove_reader(self._line)
            threading.Thread(target=self._listen, name="carpal", daemon=True).start()
            method = getattr(self._hand, "provision", None)
            if method is None:
                return "ready"
            names = described.provision(kind).context
        else:
            assert self._hand is not None
            if isinstance(self._hand, Hosted):
                return await self._run(self._hand.call, name=name, given=given, context=context)
            function = described.tools(type(self._hand))[name]
            names = signature(function, name).context
            method = getattr(self._hand, name)
        return await self._run(method, **given, **dict.fromkeys(names, context))

    async def _run(self, method: Callable[..., Any], **given: Any) -> Any:
        if not inspect.iscoroutinefunction(method):
            self._interruptible = True
            try:
                if self._context and self._context.cancelled:  # before it could be interrupted
                    raise Cancelled
                return method(**given)
            finally:
                self._interruptible = False
        self._task = self._loop.create_task(method(**given))
        if self._context and self._context.cancelled:
            self._task.cancel()
        return await self._task

    async def _release(self) -> None:
        if self._screen is not None:
            await self._screen.close()
        method = getattr(self._hand, "release", None)
        if method is not None:
            await self._run(method)

    def _lose(self, why: str) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._say({"call_id": "", **_failed("lost", why), "attachments": []})
        os._exit(70)

    # What the supervisor says.

    def _hear(self) -> None:
        for message in self._heard(self._line.recv(_READ, socket.MSG_DONTWAIT)):
            self._asked.put_nowait(message)

    def _listen(self) -> None:
        """In a thread of its own."""
        while True:
            for message in self._heard(self._line.recv(_READ)):
                self._loop.call_soon_threadsafe(self._asked.put_nowait, message)

    def _heard(self, data: bytes) -> Iterator[Answer]:
        """What is to be done in its turn; the rest is done now."""
        if not data:
            os._exit(1)  # its supervisor is gone
        self._came += data
        while len(self._came) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._came)[0]
            if len(self._came) < end:
                return
            message = json.loads(self._came[_LENGTH.size : end])
            del self._came[:end]
            if message["op"] == "cancel":
                self._cancelled.add(message["call_id"])
            if message["op"] in ("cancel", "release"):
                self._stop_call(message.get("call_id"))
            if message["op"] != "cancel":
                yield message

    def _stop_call(self, call_id: str | None) -> None:
        """Stop the call of that id, or whichever runs."""
        context, task = self._context, self._task
        if context is None or call_id not in (None, context.call_id):
            return
        context.cancelled = True
        if task is not None:
            self._loop.call_soon_threadsafe(task.cancel)
        else:
            signal.pthread_kill(self._main, _CANCEL)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._interruptible:
            self._interruptible = False
            raise Cancelled

    def _say(self, answer: Answer) -> None:
        data = json.dumps(answer).encode()
        self._line.sendall(_LENGTH.pack(len(data)) + data)


def _told(given: Any) -> Answer:
    """What a tool gave."""
    if given is None:
        return {"outcome": "ok", "content": None}
    if not isinstance(given, str):
        why = f"the tool gave {kind_of(given)}, and a result is text: have it return a str"
        return _failed("error", why)
    capture = Capture()
    capture.add(given.encode("utf-8", "replace"))
    return {"outcome": "ok", "content": capture.text()[0]}


def _failed(outcome: str, why: str) -> Answer:
    return {"outcome": outcome, "content": why.encode("utf-8", "replace").decode()}


def _attached(digest: str, size: int, media_type: str, name: str) -> Answer:
    return {
        "digest": digest,
        "size": size,
        "media_type": media_type[:_KIND_MAX],
        "name": name[-_NAME_MAX:],
    }


if __name__ == "__main__":
    main()
