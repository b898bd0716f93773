"""The timeline: events → one line per happening. Pure.

A line says when (seconds since the session's first event), what in words,
short content, and how long it took where a start is known.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from carpal.operator.events import (
    BY_ANY_BRAIN,
    appender,
    data_of,
    missing_hand,
    object_in,
    printable,
    text_in,
    time_of,
)
from carpal.operator.excerpt import without_remark
from carpal.operator.waiting import counts, waits
from carpal.v1 import types_pb2

CONTENT_WIDTH = 88
"""Characters of content; with the rest of a line it fits a wide terminal."""


@dataclass(frozen=True)
class Line:
    """One happening."""

    at: float
    """Seconds since the session's first event."""
    what: str
    content: str
    took: float | None = None
    """Seconds since what began it."""

    def __str__(self) -> str:
        took = "" if self.took is None else f"({duration(self.took)})"
        content = " ".join(part for part in (shorten(self.content), took) if part)
        return f"{self.at:9.3f}  {self.what:<15} {content}".rstrip()


def timeline(events: Iterable[types_pb2.Event]) -> list[Line]:
    """The lines of a whole log, in its order."""
    teller = Timeline()
    return [line for event in events for line in teller.lines(event)]


def shorten(text: str, width: int = CONTENT_WIDTH) -> str:
    """One line of at most `width` characters: the first with words, and how many follow it."""
    lines = [line.strip() for line in printable(text).split("\n")]
    lines = [line.replace("\t", " ") for line in lines if line]
    if not lines:
        return ""
    first, more = lines[0], len(lines) - 1
    tail = f" (+{more} line{'s' * (more > 1)})" if more else ""
    room = max(width - len(tail), 1)
    return (first if len(first) <= room else first[: room - 1] + "…") + tail


def duration(seconds: float) -> str:
    """`0.12 s`, `4.5 s`, `2 min 5 s`."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


_PATHS = {"path", "old_path"}
"""Where a tool's `command` says what to do with a path, it is no shell's."""
_SHOWN = ("command", "file_path", "pattern", "path", "old_path", "new_path")


def call_summary(data: dict[str, Any]) -> str:
    """An `agent.tool_use` in a few words: hand, tool, and the input that matters most."""
    given = data.get("input")
    if not isinstance(given, dict):
        given = {}
    if isinstance(given.get("command"), str) and not given.keys() & _PATHS:
        what = f"$ {given['command']}"
    else:
        named = [str(given[key]) for key in _SHOWN if key in given]
        what = " ".join(named) or (json.dumps(given, ensure_ascii=False) if given else "")
    tool = f"{data.get('hand', '?')}: {data.get('name', '?')}"
    return f"{tool}  {what}".rstrip()


def result_summary(data: dict[str, Any]) -> str:
    """How an `agent.tool_result` went: outcome, and the exit code where there is one."""
    outcome, code = _outcome(data), data.get("exit_code")
    if outcome == "ok" and code == 0:
        return outcome
    return outcome if code is None else f"{outcome}, exit code {code}"


def remarks(data: dict[str, Any]) -> tuple[str, ...]:
    """Lines with which a result's text may end that say no more than `result_summary`."""
    return f"[{_outcome(data)}]", f"[exit code {data.get('exit_code')}]"


def _outcome(data: dict[str, Any]) -> str:
    return str(data.get("outcome") or ("error" if data.get("is_error") else "ok"))


def usage_summary(usage: dict[str, Any]) -> str:
    """Tokens in and out, and from the cache where it helped."""
    parts = [f"{usage.get('input_tokens', 0)} tokens in", f"{usage.get('output_tokens', 0)} out"]
    if cached := usage.get("cache_read_input_tokens"):
        parts.append(f"{cached} from the cache")
    return ", ".join(parts)


class Timeline:
    """Tells a log event by event, in the order of the log."""

    def __init__(self) -> None:
        self._start: datetime | None = None
        self._began: dict[str, datetime] = {}
        """By id of the event or hand that something later refers to."""
        self._waiting: set[str] = set()
        """Calls that a person has not decided."""
        self._driver = ""

    def lines(self, event: types_pb2.Event) -> list[Line]:
        """The lines of the next event: its own, after one for a change of driver."""
        now = time_of(event)
        self._start = self._start or now
        at = (now - self._start).total_seconds()
        told = []
        role, name = appender(event)
        if role == "brain" and name != self._driver and event.type not in BY_ANY_BRAIN:
            after = f" takes over from {self._driver}" if self._driver else " takes the session"
            told.append(Line(at, "takeover" if self._driver else "brain", name + after))
            self._driver = name
        self._began[event.id] = now
        told.append(self._tell(event, at, now))
        return told

    def _tell(self, event: types_pb2.Event, at: float, now: datetime) -> Line:
        if event.HasField("redaction"):
            return Line(at, "redacted", f"{event.type}: {event.redaction.reason}")
        data = data_of(event)
        tell = _TELL.get(event.type)
        if tell is None:
            return Line(at, event.type, event.data.decode(errors="replace"))
        what, content = tell(data)
        if missing := missing_hand(event, data):
            what, content = "no hand", "{} could not be had: {}".format(*missing)
        if event.type == "session.updated" and event.position == 1:
            what = "created"
        if event.type in _BEGINS:
            self._began[str(data.get(_BEGINS[event.type]))] = now
        self._person(event, data, now)
        began = self._began.get(str(data.get(_BEGUN_BY.get(event.type, ""))))
        return Line(at, what, content, (now - began).total_seconds() if began else None)

    def _person(self, event: types_pb2.Event, data: dict[str, Any], now: datetime) -> None:
        """A call that a person must allow begins with their word."""
        if event.type == "agent.tool_use" and waits(data):
            self._waiting.add(event.id)
        call = str(data.get("tool_use_id"))
        decided = event.type == "user.tool_confirmation" and counts(event, data)
        if decided and call in self._waiting:
            self._waiting.discard(call)
            self._began[call] = now


_BEGUN_BY = {
    "agent.tool_result": "tool_use_id",
    "span.model_request_end": "model_request_start_id",
    "hand.provisioned": "hand_id",
    "hand.provision_failed": "hand_id",
    "hand.saved": "save_id",
    "hand.save_failed": "save_id",
    "hand.left": "tunnel_id",
}
"""Which member of the data names what began it."""
_BEGINS = {"hand.provision_requested": "hand_id", "hand.entered": "tunnel_id"}
"""Which member of the data names what it begins, where that is not its own id."""


def _updated(data: dict[str, Any]) -> tuple[str, str]:
    agent = object_in(data, "agent")
    hands = ", ".join(
        f"{name}={plan.get('type') if isinstance(plan, dict) else '?'}"
        for name, plan in object_in(data, "hands").items()
    )
    parts = [str(agent.get("name", "")), f"model {agent.get('model', '?')}" if agent else ""]
    return "updated", ", ".join(filter(None, [*parts, f"hands {hands}" if hands else ""]))


def _idle(data: dict[str, Any]) -> tuple[str, str]:
    reason = str(object_in(data, "stop_reason").get("type", "?"))
    return "idle", _STOPS.get(reason, reason)


def _error(data: dict[str, Any]) -> tuple[str, str]:
    error = object_in(data, "error")
    status = object_in(error, "retry_status").get("type")
    text = str(error.get("message") or error.get("type") or "")
    return "error", f"gave up: {text}" if status == "exhausted" else text


def _answered(data: dict[str, Any]) -> tuple[str, str]:
    if data.get("is_error"):
        error = data.get("error")
        said = error.get("message") if isinstance(error, dict) else error
        return "model failed", str(said or "no answer")
    usage = usage_summary(object_in(data, "model_usage"))
    if "reply" in data:  # to a question of the harness's own; it ends no turn
        return "model answered", f"what it was asked, {usage}"
    reason = data.get("stop_reason")
    said = _STOPS.get(str(reason), str(reason))
    return "model answered", f"{said}, {usage}" if reason else usage


_PURPOSES = {"compaction": "a summary", "aside": "something beside the conversation"}
"""What the model is asked for when it is no reply."""
_CUTS = {
    "summary": "a summary stands for",
    "note": "a note of the model's stands for",
    "omitted": "left out, and nobody summarised it:",
}


def _asked(data: dict[str, Any]) -> tuple[str, str]:
    model, purpose = str(data.get("model", "?")), str(data.get("purpose", "reply"))
    more = "" if purpose == "reply" else f" for {_PURPOSES.get(purpose, purpose)}"
    return "model asked", model + more


def _compacted(data: dict[str, Any]) -> tuple[str, str]:
    how = _CUTS.get(str(data.get("kind")), "a text stands for")
    before = data.get("tokens_before")
    size = f" ({before} tokens before)" if before is not None else ""
    return "window cut", f"{how} positions 1 to {data.get('through', '?')}{size}"


def _fallback(data: dict[str, Any]) -> tuple[str, str]:
    return "other model", f"{data.get('to', '?')} in place of {data.get('from', '?')}"


def _missing(data: dict[str, Any]) -> tuple[str, str]:
    where = data.get("model") or data.get("provider") or "the provider"
    return "goes without", f"{data.get('feature', '?')}, which {where} lacks"


def _loaded(data: dict[str, Any]) -> tuple[str, str]:
    names = data.get("names")
    return "tools loaded", ", ".join(map(str, names)) if isinstance(names, list) else "?"


def _tools(data: dict[str, Any]) -> tuple[str, str]:
    tools = data.get("tools")
    listed = tools if isinstance(tools, list) else []
    names = [str(tool.get("name")) for tool in listed if isinstance(tool, dict)]
    return "tools", f"{data.get('hand', '?')}: {', '.join(names)}"


def _result(data: dict[str, Any]) -> tuple[str, str]:
    text = without_remark(text_in(data), remarks(data))
    return "tool result", ": ".join(filter(None, [result_summary(data), text]))


def _confirmed(data: dict[str, Any]) -> tuple[str, str]:
    word = "allowed" if data.get("result") == "allow" else "denied"
    message = data.get("deny_message")
    return word, "by a person" + (f": {message}" if message else "")


def _consented(data: dict[str, Any]) -> tuple[str, str]:
    word = "consent given" if data.get("result") == "given" else "consent denied"
    return word, str(data.get("message") or "")


def _hand(what: str, words: str, *members: str) -> Callable[[dict[str, Any]], tuple[str, str]]:
    """A hand's name, then `words` filled with members of the data, if those are there."""

    def tell(data: dict[str, Any]) -> tuple[str, str]:
        name, values = str(data.get("name", "?")), [data.get(member) for member in members]
        return what, f"{name} {words.format(*values)}" if all(values) else name

    return tell


def _ready(data: dict[str, Any]) -> tuple[str, str]:
    what, text = _hand("hand ready", "on {}", "daemon")(data)
    if "tools" in data:
        _, named = _tools({**data, "hand": "its tools"})
        text += f"; {named}"
    if changed := object_in(data, "tools_changed"):
        said = [f"{kind} {', '.join(map(str, names))}" for kind, names in changed.items() if names]
        text += f"; not those it had: {'; '.join(said)}"
    return what, text


def _entered(data: dict[str, Any]) -> tuple[str, str]:
    who = str(data.get("by", "?")).rpartition("/")[2]
    control = " and has control" if data.get("control") else ""
    return "person enters", f"{data.get('name', '?')}: {who}, {data.get('kind', '?')}{control}"


_STOPS = {
    "end_turn": "turn ended",
    "tool_use": "calls tools",
    "max_tokens": "cut at max_tokens",
    "requires_action": "waits for a person",
    "budget_reached": "budget reached",
    "retries_exhausted": "retries exhausted",
}
"""Stop reasons in words; others are words already."""


_TELL: dict[str, Callable[[dict[str, Any]], tuple[str, str]]] = {
    "session.updated": _updated,
    "session.status_running": lambda data: ("running", ""),
    "session.status_idle": _idle,
    "session.consent_required": lambda data: (
        "consent needed",
        f"{data.get('mcp_server_name', '?')}: of the user {data.get('user', '?')}",
    ),
    "session.error": _error,
    "user.message": lambda data: ("message", text_in(data)),
    "user.tool_confirmation": _confirmed,
    "user.consent": _consented,
    "user.interrupt": lambda data: ("interrupt", "by a person"),
    "user.save": lambda data: ("save asked for", str(data.get("hand") or "")),
    "system.message": lambda data: ("system message", text_in(data)),
    "context.harness": lambda data: (
        "harness",
        f"{data.get('name', '?')} {data.get('version', '')}".rstrip(),
    ),
    "context.tools": _tools,
    "context.tools_loaded": _loaded,
    "context.fallback_model": _fallback,
    "context.feature_missing": _missing,
    "context.media_refused": lambda data: ("media refused", str(data.get("reason", ""))),
    "agent.thread_context_compacted": _compacted,
    "span.model_request_start": _asked,
    "span.model_request_end": _answered,
    "agent.thinking": lambda data: ("thinking", text_in(data)),
    "agent.message": lambda data: ("says", text_in(data)),
    "agent.tool_use": lambda data: ("tool call", call_summary(data)),
    "agent.tool_result": _result,
    "hand.provision_requested": _hand("hand asked for", "({}) from {}", "type", "daemon"),
    "hand.provisioned": _ready,
    "hand.provision_failed": _hand("no hand", ""),
    "hand.lost": _hand("hand lost", "is gone: {}", "reason"),
    "hand.released": _hand("hand released", ""),
    "hand.entered": _entered,
    "hand.left": _hand("person left", "because: {}", "because"),
    "hand.saved": _hand("saved", "as {}, {} bytes", "blob", "size"),
    "hand.save_failed": _hand("not saved", ": {}", "message"),
    "hand.late_result": lambda data: ("late result", text_in(data) or result_summary(data)),
}
