"""What a hand server says, checked: it may be anything. Pure, but for the bytes it hands over.

Nothing it says grows the daemon, or ends it: what is wrong is a ValueError, which names it.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import grpc

from carpal.v1 import hand_pb2 as pb
from hands.contract import (
    LISTS_TOOLS,
    Attachment,
    Event,
    FileChange,
    Outcome,
    Output,
    Result,
    Tool,
    Unit,
)
from hands.plugins import told, told_units
from hands.plugins.told import Told
from hands.results import OUTCOMES

DEFAULT_LIMIT = 120.0
"""Seconds a call may take where nobody says otherwise, its tool neither."""
KNOWN = frozenset({"events", "files", "shell", "units", "visual", "replay", LISTS_TOOLS})
"""Capabilities of a server that mean something to the daemon; others are passed over."""
_ATTACHMENTS_MAX = 20
_WORDS_MAX = 255
_EVENT_MAX = 64 * 1024
_SECONDS_MAX = 1e11
_FAR = 2**53
_OUTCOMES = {number: name for name, number in OUTCOMES.items()}
_DID_NOT_START = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)
"""Statuses by which a server says, as the contract has it, that a call did not start."""


def event(said: pb.EventsResponse) -> Event:
    """What is said unasked; of what is no event, one that is counted as such."""
    try:
        data = json.loads(said.data[: _EVENT_MAX + 1] or b"{}")
        return Event(said.event_id, said.kind, dict(data))
    except (ValueError, TypeError, RecursionError):
        return Event(said.event_id, "", {})


class NotThere(ValueError):
    """A server has no type of that name."""


def units(name: str, types: Sequence[pb.HandTypeInfo]) -> tuple[Unit, ...]:
    """The units that the type of that name has now. Raises ValueError."""
    return told_units.units((each.unit_id, each.labels) for each in _of(name, types).units)


def _of(name: str, types: Sequence[pb.HandTypeInfo], *, exactly: bool = False) -> pb.HandTypeInfo:
    """The type of that name, or the only one unless it is to be `exactly` that. Raises NotThere."""
    found = [each for each in types if each.type == name]
    if not found and len(types) == 1 and not exactly:
        found = list(types)
    if not found:
        there = ", ".join(sorted(each.type for each in types)[:9]) or "none"
        raise NotThere(f"it has no hand type {name!r}; it has {there}")
    return found[0]


def described(
    name: str, types: Sequence[pb.HandTypeInfo], *, exactly: bool = False
) -> tuple[Told, frozenset[str]]:
    """The type of that name, or the only one; and its capabilities. Raises ValueError.

    NotThere when there is none, or with `exactly` none of that name.
    """
    info = _of(name, types, exactly=exactly)
    claimed = frozenset(info.capabilities) & KNOWN
    said = {
        "described": {
            "description": info.description,
            "tools": _tools(info.tools),
            "config_schema": _json(info.config_schema, "config_schema") or dict(told.NOTHING),
            "capabilities": sorted(claimed - {"replay", LISTS_TOOLS}),
        }
    }
    return told.checked(name, said, lists=LISTS_TOOLS in claimed), claimed


def own_tools(tools: Sequence[pb.ToolInfo]) -> tuple[list[Tool], dict[str, float]]:
    """The tools that one hand was made with, and the seconds each may take. Raises ValueError."""
    return told.own_tools(_tools(tools))


def _tools(tools: Sequence[pb.ToolInfo]) -> list[dict[str, object]]:
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": _json(tool.input_schema, f"the schema of tool {tool.name}"),
            "time_limit": limit(tool),
        }
        for tool in tools
    ]


def limit(tool: pb.ToolInfo) -> float:
    """Seconds that a call of it may take where who calls does not say."""
    if not tool.HasField("time_limit"):
        return DEFAULT_LIMIT
    return tool.time_limit.seconds + tool.time_limit.nanos / 1e9


def _json(data: bytes, what: str) -> object:
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError):
        raise ValueError(f"{what} is no JSON") from None


class Progress:
    """Where a call's output stands."""

    def __init__(self) -> None:
        self._end = 0

    def output(self, chunk: pb.OutputChunk) -> Output:
        """The next of it. Raises ValueError for one that goes back, or where no output ends."""
        if chunk.offset < self._end or chunk.offset + len(chunk.data) > _FAR:
            raise ValueError(f"output at {chunk.offset} after output up to {self._end}")
        self._end = chunk.offset + len(chunk.data)
        return Output(chunk.offset, chunk.data)


def result(said: pb.Result, folder: Path) -> Result:
    """How a call ended; the bytes of attachments are put into `folder`, the hand's own."""
    if said.outcome not in _OUTCOMES:
        raise ValueError("a result has no outcome that there is")
    kept = [_attachment(each, folder) for each in said.attachments[:_ATTACHMENTS_MAX]]
    return Result(
        outcome=Outcome(_OUTCOMES[said.outcome]),
        content=said.content or "[the tool answered nothing]",
        exit_code=said.exit_code if said.HasField("exit_code") else None,
        output_bytes=min(said.output_bytes, _FAR),
        omitted_bytes=min(said.omitted_bytes, _FAR),
        background=min(said.background, 2**31 - 1),
        started=_seconds(said.started.seconds, said.started.nanos),
        elapsed=_seconds(said.elapsed.seconds, said.elapsed.nanos),
        files=_NO_FILES,
        attachments=kept,
    )


_NO_FILES: Sequence[FileChange] = ()
"""Which files a call changed is the daemon's to see, and it does not see into such a hand."""


def _seconds(seconds: int, nanos: int) -> float:
    return min(max(0.0, seconds + nanos / 1e9), _SECONDS_MAX)


def _attachment(said: pb.Attachment, folder: Path) -> Attachment:
    digest = hashlib.sha256(said.data).digest()
    if not said.data or said.digest not in (b"", digest):
        raise ValueError(f"attachment {said.name!r} has no data, or another digest than its data")
    kept = folder / "kept"
    kept.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(kept / digest.hex(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(said.data)
    kind, name = said.media_type[:_WORDS_MAX], said.name[:_WORDS_MAX]
    return Attachment(digest, len(said.data), kind or "application/octet-stream", name)


def overdue(ended: Result, seconds: float) -> Result:
    """The result of a call that ended because its time was over, whatever its server calls it."""
    if ended.outcome != Outcome.CANCELLED:
        return ended
    text = f"{ended.content}\n[timed out after {seconds:g} s; its server was told to end]"
    return dataclasses.replace(ended, outcome=Outcome.TIMED_OUT, content=text)


def failed(code: grpc.StatusCode, why: str, *, began: bool) -> Result:
    """What a status in place of a result means; `began` when the call is known to have."""
    if code in _DID_NOT_START and not began:
        return Result(Outcome.ERROR, f"[the hand did not take the call: {why}]")
    text = f"[interrupted: the hand's server failed: {why}; this call may have partly happened]"
    return Result(Outcome.INTERRUPTED, text)
