"""Live output: events and moments → what to write next. Pure.

The log is the truth; moments (deltas, a tool's output) only come sooner. What
was shown as it came is not shown again from the log, and what did not come in
time is shown from the log, so that each word appears once.
"""

import codecs
from collections.abc import Callable
from typing import Any, ClassVar

from carpal.operator.events import (
    BY_ANY_BRAIN,
    Printable,
    appender,
    data_of,
    missing_hand,
    object_in,
    printable,
    text_in,
)
from carpal.operator.excerpt import unseen
from carpal.operator.timeline import call_summary, duration, remarks, result_summary, shorten
from carpal.operator.waiting import counts, waits
from carpal.v1 import orchestrator_pb2, types_pb2

SETTLED = 0.25
"""Seconds after which a watch has surely begun: a request whose first delta comes later,
and that was not under way before, is seen from its start."""


LIVE = 64 * 1024
"""Bytes of a call's output shown as it comes: as much as its result has of the beginning."""


class _Output:
    """One call's output so far: bytes to text, across chunks that split a character."""

    def __init__(self) -> None:
        self.shown = ""
        """The beginning of the output, as text."""
        self.screen = Printable()
        self._offset = 0
        self._cut = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def take(self, chunk: orchestrator_pb2.ToolOutput) -> tuple[str, bool]:
        """The text a chunk adds, and whether from now on some is missing: the result has it."""
        start, data = chunk.chunk.offset, chunk.chunk.data
        if self._cut or start + len(data) <= self._offset:
            return "", False  # a new driver replays from the start
        new = data[self._offset - start :] if start <= self._offset else b""
        room = LIVE - self._offset
        text = self._decoder.decode(new[:room])
        self._offset += len(new[:room])
        self._cut = not new or len(new) > room
        self.shown += text
        return text, self._cut


class Live:
    """What to write for each event and moment, in the order they come."""

    def __init__(self, own: int = 0) -> None:
        """`own`: the viewer's own message is at this position; of later ones each is a line."""
        self._own = own
        self._written: dict[str, str] = {}
        """Text shown as deltas and not yet seen in the log, by model request."""
        self._screens: dict[str, Printable] = {}
        """By model request whose deltas we get from the first on."""
        self._asked = False
        """The watch saw a model being asked, so the next request's deltas are whole."""
        self._since: float | None = None
        """When the watch began."""
        self._begun: set[str] = set()
        """Model requests that the log says are under way."""
        self._late: set[str] = set()
        """Model requests of whose deltas some may have been missed."""
        self._told: set[str] = set()
        """Model requests and calls whose end is in the log: later moments are stale."""
        self._outputs: dict[str, _Output] = {}
        self._calls: dict[str, tuple[float, str]] = {}
        """When the open calls began, and what they are."""
        self._waiting: set[str] = set()
        """Those that a person has not decided."""
        self._driver = ""
        self._at_line_start = True
        self._writer = ""
        """Whose text the line begun is."""

    def watching(self, now: float) -> None:
        """A watch begins: moments before it were missed, so a reply half-way is left to the log."""
        self._asked, self._since = False, now
        self._late |= self._begun | self._screens.keys()
        self._screens.clear()

    def event(self, event: types_pb2.Event) -> str:
        """What an event adds."""
        data = data_of(event)
        said = self._takeover(event)
        show = self._shows.get(event.type)
        return said + (show(self, event, data) if show else "")

    def moment(self, moment: orchestrator_pb2.WatchResponse, now: float) -> str:
        """What a moment adds; nothing when the log already told it."""
        which = moment.WhichOneof("moment")
        if which == "text":
            return self._delta(moment.text, now)
        if which == "output" and moment.output.call_id not in self._told:
            return self._output(moment.output)
        if which == "phase" and moment.phase.name == "model":
            self._asked = True
        return ""

    def _delta(self, delta: orchestrator_pb2.TextDelta, now: float) -> str:
        request = delta.model_request_id
        if request not in self._screens and request not in self._late:
            settled = self._since is not None and now - self._since >= SETTLED
            if self._asked or settled:
                self._screens[request] = Printable()
            else:
                self._late.add(request)
            self._asked = False
        screen = self._screens.get(request)
        if screen is None or delta.thinking or request in self._told:
            return ""
        self._written[request] = self._written.get(request, "") + delta.text
        return self._write(request, screen.take(delta.text))

    def _output(self, chunk: orchestrator_pb2.ToolOutput) -> str:
        output = self._outputs.setdefault(chunk.call_id, _Output())
        text, missing = output.take(chunk)
        said = self._write(chunk.call_id, output.screen.take(text))
        if missing:
            said += self._line("[there is more output; its end comes with the result]")
        return said

    def _takeover(self, event: types_pb2.Event) -> str:
        role, name = appender(event)
        if role != "brain" or name == self._driver or event.type in BY_ANY_BRAIN:
            return ""
        before, self._driver = self._driver, name
        return self._line(f"[{name} takes over from {before}]") if before else ""

    def _asking(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        self._begun.add(event.id)
        return ""

    def _answered(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        request = str(data.get("model_request_start_id"))
        self._begun.discard(request)
        self._late.discard(request)
        if not data.get("is_error"):
            return ""
        # Nothing of it is in the log: what still comes of it is of a try that is over.
        self._told.add(request)
        self._written.pop(request, None)
        return self._end(request, self._screens.pop(request, None))

    def _message(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        request = str(data.get("model_request_start_id"))
        self._told.add(request)
        held = self._end(request, self._screens.pop(request, None))
        text, shown = text_in(data), self._written.pop(request, "")
        if shown and text.startswith(shown):
            return held + self._write(request, printable(text[len(shown) :])) + self._line()
        if shown and shown.startswith(text):  # the deltas of several messages
            self._written[request] = shown[len(text) :]
            return held + self._line()
        return held + self._line(text)

    def _call(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        self._calls[event.id] = (_seconds(event), call_summary(data))
        if waits(data):
            self._waiting.add(event.id)
        return self._line(f"[{call_summary(data)}]")

    def _confirmed(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        # It begins with a person's word: what it waited for that is none of its time.
        call = str(data.get("tool_use_id"))
        if call in self._waiting and counts(event, data):
            self._waiting.discard(call)
            if call in self._calls:
                self._calls[call] = (_seconds(event), self._calls[call][1])
        return ""

    def _said(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        if event.position <= self._own:
            return ""
        who = appender(event)[1] or "somebody"
        return self._line(f"[message from {who}: {shorten(text_in(data))}]")

    def _result(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        call = str(data.get("tool_use_id"))
        self._told.add(call)
        several = len(self._calls) > 1
        began, what = self._calls.pop(call, (None, ""))
        took = "" if began is None else f", {duration(_seconds(event) - began)}"
        label = f"{what} → " if several and what else ""
        output = self._outputs.pop(call, None)
        said = self._end(call, output.screen) if output else ""
        rest = unseen(text_in(data), output.shown if output else "", remarks(data))
        said += self._line(rest) if rest else ""
        return said + self._line(f"[{label}{result_summary(data)}{took}]")

    def _error(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        if missing_hand(event, data):
            return self._hand(event, data)
        error = object_in(data, "error")
        return self._line(f"[error: {error.get('message') or error.get('type') or 'unknown'}]")

    def _hand(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        if missing := missing_hand(event, data):
            return self._line("[hand {!r} could not be had: {}]".format(*missing))
        return self._line(f"[hand {data.get('name')!r} is gone: {data.get('reason') or 'why?'}]")

    def _consent(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        whose = f"the user {data.get('user')!r} consents to the use of {data.get('url')!r}"
        return self._line(f"[waits until {whose}]")

    def _interrupt(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        # Of open calls each says for itself that it was cancelled.
        return "" if self._calls else self._line("[interrupted]")

    def _end(self, writer: str, screen: Printable | None) -> str:
        return self._write(writer, screen.end()) if screen else ""

    def _line(self, text: str = "") -> str:
        """Text on lines of its own; without text, the end of the line begun."""
        start = "" if self._at_line_start else "\n"
        self._at_line_start = True
        text = printable(text)
        return start + text + ("\n" if text and not text.endswith("\n") else "")

    def _write(self, writer: str, text: str) -> str:
        """Safe text of a stream; on a new line if another stream's is unfinished."""
        if not text:
            return ""
        start = self._line() if writer != self._writer else ""
        self._writer, self._at_line_start = writer, text.endswith("\n")
        return start + text

    _shows: ClassVar[dict[str, Callable[["Live", types_pb2.Event, dict[str, Any]], str]]] = {
        "agent.message": _message,
        "span.model_request_start": _asking,
        "span.model_request_end": _answered,
        "agent.tool_use": _call,
        "agent.tool_result": _result,
        "hand.lost": _hand,
        "hand.provision_failed": _hand,
        "session.error": _error,
        "session.consent_required": _consent,
        "user.interrupt": _interrupt,
        "user.message": _said,
        "user.tool_confirmation": _confirmed,
    }


def _seconds(event: types_pb2.Event) -> float:
    return event.time.ToMicroseconds() / 1e6
