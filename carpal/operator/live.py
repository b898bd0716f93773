"""Live output: events and moments → what to write next. Pure.

The log is the truth; moments (deltas, a tool's output) only come sooner. What
was shown as it came is not shown again from the log, and what did not come in
time is shown from the log, so that each word appears once.
"""

import codecs
from collections.abc import Callable
from typing import Any, ClassVar

from carpal.operator.events import appender, data_of, object_in, printable, text_in
from carpal.operator.timeline import call_summary, duration, result_summary
from carpal.v1 import orchestrator_pb2, types_pb2

RESULT_LINES = 40
"""Lines of a result shown from the log; the rest is counted."""
_REMEMBERED = 64 * 1024
"""Characters of a call's output kept to find what its result says beyond it."""


class _Output:
    """One call's output so far: bytes to text, across chunks that split a character."""

    def __init__(self) -> None:
        self.offset = 0
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def take(self, chunk: orchestrator_pb2.ToolOutput) -> str:
        start, data = chunk.chunk.offset, chunk.chunk.data
        if start + len(data) <= self.offset:
            return ""  # a new driver replays from the start
        missing = start - self.offset
        gap = f"\n[{missing} bytes not shown]\n" if missing > 0 else ""
        self.offset = start + len(data)
        text = gap + self._decoder.decode(data[max(-missing, 0) :])
        self.shown = (self.shown + text)[: _REMEMBERED + 1]
        return text

    def unseen(self, result: str) -> str:
        """What a result's content says beyond what was shown, as far as that can be told."""
        if len(self.shown) > _REMEMBERED or not result.startswith(self.shown):
            return ""
        return result[len(self.shown) :]


class Live:
    """What to write for each event and moment, in the order they come."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}
        """Text shown as deltas and not yet seen in the log, by model request."""
        self._told: set[str] = set()
        """Model requests and calls whose end is in the log: later moments are stale."""
        self._outputs: dict[str, _Output] = {}
        self._calls: dict[str, float] = {}
        self._driver = ""
        self._at_line_start = True

    def event(self, event: types_pb2.Event) -> str:
        """What an event adds."""
        data = data_of(event)
        said = self._takeover(event)
        show = self._shows.get(event.type)
        return said + (show(self, event, data) if show else "")

    def moment(self, moment: orchestrator_pb2.WatchResponse) -> str:
        """What a moment adds; nothing when the log already told it."""
        which = moment.WhichOneof("moment")
        if which == "text" and not moment.text.thinking:
            request = moment.text.model_request_id
            if request in self._told:
                return ""
            self._written[request] = self._written.get(request, "") + moment.text.text
            return self._write(moment.text.text)
        if which == "output" and moment.output.call_id not in self._told:
            output = self._outputs.setdefault(moment.output.call_id, _Output())
            return self._write(output.take(moment.output))
        if which == "phase" and moment.phase.name == "provision" and moment.phase.detail:
            return self._line(f"[{moment.phase.detail}]")
        return ""

    def _takeover(self, event: types_pb2.Event) -> str:
        role, name = appender(event)
        if role != "brain" or name == self._driver:
            return ""
        before, self._driver = self._driver, name
        return self._line(f"[{name} takes over from {before}]") if before else ""

    def _message(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        request = str(data.get("model_request_start_id"))
        self._told.add(request)
        text, shown = text_in(data), self._written.get(request, "")
        if text.startswith(shown):
            self._written[request] = ""
            return self._write(text[len(shown) :]) + self._line()
        if shown.startswith(text):  # the deltas of several messages
            self._written[request] = shown[len(text) :]
            return self._line()
        self._written[request] = ""
        return self._line(text)

    def _call(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        self._calls[event.id] = event.time.ToMicroseconds() / 1e6
        return self._line(f"[{call_summary(data)}]")

    def _result(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        call = str(data.get("tool_use_id"))
        self._told.add(call)
        output = self._outputs.pop(call, None)
        lines = (output.unseen(text_in(data)) if output else text_in(data)).splitlines()
        said = self._line("\n".join(lines[:RESULT_LINES])) if any(lines) else ""
        if len(lines) > RESULT_LINES:
            said += self._line(f"[{len(lines) - RESULT_LINES} more lines in the log]")
        began = self._calls.pop(call, None)
        took = "" if began is None else duration(event.time.ToMicroseconds() / 1e6 - began)
        return said + self._line(f"[{', '.join(filter(None, [result_summary(data), took]))}]")

    def _error(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        error = object_in(data, "error")
        return self._line(f"[{error.get('type', 'error')}: {error.get('message', '')}]")

    def _hand(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        what = event.type.removeprefix("hand.").replace("_", " ")
        why = data.get("message") or data.get("reason") or ""
        return self._line(f"[hand {data.get('name', '?')} {what}: {why}]")

    def _interrupt(self, event: types_pb2.Event, data: dict[str, Any]) -> str:
        return self._line("[interrupted]")

    def _line(self, text: str = "") -> str:
        """Text on lines of its own; without text, the end of the line begun."""
        start = "" if self._at_line_start else "\n"
        self._at_line_start = True
        return start + (printable(text) + "\n" if text else "")

    def _write(self, text: str) -> str:
        text = printable(text)
        if text:
            self._at_line_start = text.endswith("\n")
        return text

    _shows: ClassVar[dict[str, Callable[["Live", types_pb2.Event, dict[str, Any]], str]]] = {
        "agent.message": _message,
        "agent.tool_use": _call,
        "agent.tool_result": _result,
        "hand.lost": _hand,
        "hand.provision_failed": _hand,
        "session.error": _error,
        "user.interrupt": _interrupt,
    }
