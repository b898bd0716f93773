"""The process of one hand whose type is a class of `hands/api.py`: the only one its code runs in.

`python -P -m hands.plugins.host describe MODULE:CLASS FD` writes one JSON object to FD:
`described` and `unready`, or `wrong`. So do `… units MODULE:CLASS FD`, with `units`, and `… reset
MODULE:CLASS FD UNIT`, with `reset`. These three end when their standard input does.

`… run MODULE:CLASS FD FOLDER HAND OWN UNIT` serves the supervisor at
the other end of the socket FD, in frames as the supervisor's own: `call {call_id, tool, input,
limit}`, `cancel {call_id}`, `release`; answered by `{call_id, outcome, content, attachments}`,
content null when the output is the result. A hand that is lost says so also unasked, with an empty
call_id. HAND is for people who look at ps. In a sandbox, whose
workspace is not in the hand's folder, `OWN` after it is that folder; else it is empty. UNIT is the
id of the hand's unit, where its type has units.

Calls run in the main thread, one at a time. Another thread reads what the supervisor says, so that
a call that never gives way can be cancelled.
"""

import asyncio
import importlib
import inspect
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from hands import described
from hands.api import Cancelled, Context, HandLost, HandType, ToolError, Unit
from hands.hints import signature
from hands.inside.output import Capture
from hands.plugins.hosted import Hosted
from hands.plugins.told_units import UNITS_MAX
from hands.plugins.views import Views

PROVISION = ".provision"
"""The call that makes the hand; no tool has such a name."""
MEMORY = 4 * 2**30
"""Bytes of its own that a process may have which is asked something and is no hand's."""
_FIRST_KILLED = "1000"
_CANCEL = signal.SIGUSR1
_LENGTH = struct.Struct(">I")
_NAME_MAX, _KIND_MAX = 255, 127
_WHY_MAX = 4000
"""Characters of why something failed."""

Answer = dict[str, Any]


def main() -> None:
    """See above."""
    mode, target, fd = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
    if mode != "run":
        _guard(fd)
        _bound()
        told = json.dumps(_ASKED[mode](target, *sys.argv[4:])).encode() + b"\n"
        while told:
            told = told[os.write(fd, told) :]
        os._exit(0)  # whatever threads it started
    own, unit = (*sys.argv[6:], "", "")[:2]
    folder = Path(sys.argv[4])
    Host(target, socket.socket(fileno=fd), folder, Path(own) if own else None, unit).run()


def _guard(answer: int) -> None:
    """Go on in a child, and stay to end it, with all of this group, once the daemon has ended.

    The child runs what others wrote, and may hang for good.
    """
    child = os.fork()
    if child == 0:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        return
    os.close(answer)
    ended = os.pidfd_open(child)
    if ended in select.select([0, ended], [], [])[0]:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)
    os.killpg(0, signal.SIGKILL)


def _bound() -> None:
    """Keep what is asked here, and each process it starts, from the machine's memory.

    A hand has control groups; this has none, and is over in a minute.
    """
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if most == resource.RLIM_INFINITY or most > MEMORY:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    # Of a machine that has less, the kernel takes this first.
    Path("/proc/self/oom_score_adj").write_text(_FIRST_KILLED)


def load(target: str) -> type[HandType]:
    """The class. Raises what importing it does, and TypeError when it is none."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for each in name.split("."):
        found = getattr(found, each)
    if not (isinstance(found, type) and issubclass(found, HandType)):
        raise TypeError(f"{target} is no class derived from hands.api.HandType")
    return found


def _described(target: str) -> Answer:
    try:
        kind = load(target)
        told = described.described(kind)
    except TypeError as error:
        return {"wrong": str(error)}
    except BaseException as error:  # noqa: BLE001 - of whatever it raises the owner is told
        traceback.print_exc()
        return {"wrong": f"importing {target} failed: {_brief(error)}"}
    try:
        unready: Any = kind.probe()
    except BaseException as error:  # noqa: BLE001 - as above
        traceback.print_exc()
        unready = f"its probe failed: {_brief(error)}"
    if type(unready) is not str:
        unready = f"its probe gave {_kind_of(unready)}; it must give why there is no hand, or ''"
    return {"described": told, "unready": unready[:_WHY_MAX]}


def _units(target: str) -> Answer:
    try:
        kind: Any = load(target)
        named = list(islice(_done(kind.units()), UNITS_MAX + 1))
        for each in named:
            if not isinstance(each, Unit):
                raise TypeError(f"`units` names {_kind_of(each)}, and a unit is a Unit")
        told = [[each.unit_id, dict(each.labels)] for each in named]
        json.dumps(told)
    except BaseException as error:  # noqa: BLE001 - as above
        traceback.print_exc()
        return {"wrong": f"its `units` failed: {_brief(error)}"}
    return {"units": told}


def _reset(target: str, unit_id: str) -> Answer:
    try:
        kind: Any = load(target)
        given = _done(kind.reset(unit_id))
        if given is not None:
            raise TypeError(f"`reset` gave {_kind_of(given)}; it gives nothing, or raises why not")
    except BaseException as error:  # noqa: BLE001 - as above
        traceback.print_exc()
        return {"wrong": _brief(error, plain=isinstance(error, ToolError)) or "it does not say why"}
    return {"reset": True}


def _done(given: Any) -> Any:
    """What a method gave, also one that is `async`."""
    if not inspect.iscoroutine(given):
        return given
    loop = asyncio.new_event_loop()
    return loop.run_until_complete(given)


_ASKED: Mapping[str, Callable[..., Answer]] = {
    "describe": _described,
    "units": _units,
    "reset": _reset,
}


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
        self._folder = folder
        self._own = own
        self._asked: asyncio.Queue[Answer] = asyncio.Queue()
        self._hand: HandType | None = None
        self._views: Views | None = None
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
        threading.Thread(target=self._listen, name="carpal", daemon=True).start()
        self._loop.run_until_complete(self._serve())
        os._exit(0)  # whatever threads it started

    async def _serve(self) -> None:
        while True:
            # On the loop goes on between calls what the hand began.
            message = await self._asked.get()
            if message["op"] == "release":
                await self._release()
                return
            if self._views is not None:
                await self._views.end_control()
            async with self._calls:
                answer = await self._answer(message)
            if message["tool"] == PROVISION and answer["outcome"] == "ok":
                self._views = Views(self._hand, self._calls)
                await self._views.open(self._own or self._folder.parent)
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
            answer = _failed("lost", _brief(error, plain=True) or "its tool says that it is gone")
        except ToolError as error:
            answer = _failed("error", _brief(error, plain=True) or "the tool failed")
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises, its call failed
            traceback.print_exc()
            answer = _failed("error", f"the tool failed: {_brief(error)}")
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
        if self._views is not None:
            await self._views.close()
        method = getattr(self._hand, "release", None)
        if method is not None:
            await self._run(method)

    def _lose(self, why: str) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._say({"call_id": "", **_failed("lost", why), "attachments": []})
        os._exit(70)

    # The other thread.

    def _listen(self) -> None:
        with self._line.makefile("rb") as frames:
            while head := frames.read(_LENGTH.size):
                (size,) = _LENGTH.unpack(head)
                message = json.loads(frames.read(size))
                if message["op"] == "cancel":
                    self._cancelled.add(message["call_id"])
                if message["op"] in ("cancel", "release"):
                    self._stop_call(message.get("call_id"))
                if message["op"] != "cancel":
                    self._loop.call_soon_threadsafe(self._asked.put_nowait, message)
        os._exit(1)  # its supervisor is gone

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
        why = f"the tool gave {_kind_of(given)}, and a result is text: have it return a str"
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


def _brief(error: BaseException, *, plain: bool = False) -> str:
    try:
        text = str(error)[:_WHY_MAX]
    except Exception:  # noqa: BLE001 - it was made to be looked at, and fails at that
        text = "it cannot say why"
    return text if plain else f"{type(error).__name__}: {text}".removesuffix(": ")


def _kind_of(value: Any) -> str:
    return f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"


if __name__ == "__main__":
    main()
