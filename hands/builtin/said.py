"""What a supervisor says, checked: in its hand runs code nobody trusts, and may speak in its place.

Pure. Whatever comes is a value of the right type and size, or a ValueError;
nothing it says names a process to the daemon, grows it, or ends it.
"""

import base64
import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hands.contract import (
    Attachment,
    Change,
    FileChange,
    Outcome,
    Output,
    Result,
    Spooled,
    Started,
    Step,
)
from hands.inside.output import KEEP

FRAME_MAX = 16 * 1024 * 1024
"""Bytes of one frame: a tool's whole answer, escaped as JSON."""
HELLO_MAX = 1024 * 1024
"""Bytes of the first frame: the names of the few calls a hand holds."""
_QUOTES_MAX, _MARKS_MAX = 400_000, 100_000
"""Of quotes, and of commas and brackets outside of strings: a result with all its files has 20,000
of each. Each costs the daemon many times its own size, and text costs only that."""
_CALLS_MAX = 10_000
"""Calls a hand holds at most, by far."""
_COUNT_MAX = 2**53
_FILES_MAX = 1000
"""Changes of files that a result tells at most."""
_PATH_MAX = 4096
_ATTACHMENTS_MAX = 20
_WORDS_MAX = 255
"""Characters of an attachment's name and media type."""
_WAITING_MAX = 1024 * 1024
"""Bytes of output of one call that wait to be taken: the beginning of it is all that is told."""
_SECONDS_MAX = 1e11


@dataclass(frozen=True, slots=True)
class Hello:
    """A supervisor's first words."""

    calls: frozenset[str]
    """Those it holds."""
    quiet: float
    """Seconds since it last heard of a brain."""
    answers: frozenset[str]
    """What it can be asked."""


def frame(data: bytes) -> dict[str, Any]:
    """A frame's object. Raises ValueError."""
    event = parsed(data)
    if not isinstance(event, dict):
        raise ValueError("a frame is no object")
    return event


def parsed(data: bytes) -> Any:
    """JSON that a hand wrote, unless it has far more parts than ours. Raises ValueError."""
    # Without escapes every quote begins or ends a string.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    if plain.count(b'"') > _QUOTES_MAX:
        raise ValueError("it has too many strings")
    outside = b"".join(plain.split(b'"')[::2])
    if sum(map(outside.count, (b",", b"[", b"{"))) > _MARKS_MAX:
        raise ValueError("it has too many parts")
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def hello(event: Mapping[str, Any]) -> Hello:
    """The first frame of a connection. Raises ValueError."""
    return Hello(
        frozenset(_names(event.get("calls"), "calls")),
        _seconds(event, "quiet"),
        frozenset(_names(event.get("answers", []), "answers")),
    )


def step(event: Mapping[str, Any]) -> Step | None:
    """What a frame says of a call; None for a newer supervisor's event. Raises ValueError."""
    match event.get("event"):
        case "started":
            return Started(_count(event, "pid"), _count(event, "start"))
        case "output":
            return _output(event)
        case "spooled":
            return Spooled(_count(event, "end"))
        case "result":
            return _result(event)
    return None


def _output(event: Mapping[str, Any]) -> Output:
    output = Output(_count(event, "offset"), base64.b64decode(_text(event, "data")))
    if output.offset + len(output.data) > KEEP:
        raise ValueError("output beyond the beginning is not told but spooled")
    return output


def _result(event: Mapping[str, Any]) -> Result:
    files, attached = event.get("files", []), event.get("attachments", [])
    if not isinstance(files, list) or not isinstance(attached, list):
        raise ValueError("files or attachments is no list")
    return Result(
        outcome=Outcome(_text(event, "outcome")),
        content=_text(event, "content") or "[the tool answered nothing]",
        exit_code=_exit_code(event.get("exit_code")),
        output_bytes=_count(event, "output_bytes"),
        omitted_bytes=_count(event, "omitted_bytes"),
        background=min(_count(event, "background"), 2**31 - 1),
        started=_seconds(event, "started"),
        elapsed=_seconds(event, "elapsed"),
        files=[_file_change(each) for each in files[:_FILES_MAX]],
        files_omitted=min(_count(event, "files_omitted"), 2**31 - 1),
        files_unknown=event.get("files_unknown") is True,
        attachments=[_attachment(each) for each in attached[:_ATTACHMENTS_MAX]],
    )


def _file_change(told: Any) -> FileChange:
    if not isinstance(told, dict):
        raise ValueError("a change of a file is no object")
    digest = bytes.fromhex(_text(told, "digest"))
    path = _text(told, "path")[:_PATH_MAX]
    return FileChange(
        path=path,
        kind=Change(_text(told, "kind")),
        size=_count(told, "size"),
        digest=digest[:64],
        kept=len(digest) == 32 and told.get("kept") is True,
    )


def _attachment(told: Any) -> Attachment:
    if not isinstance(told, dict):
        raise ValueError("an attachment is no object")
    digest = bytes.fromhex(_text(told, "digest"))
    if len(digest) != 32:
        raise ValueError("an attachment has no SHA-256")
    return Attachment(
        digest=digest,
        size=_count(told, "size"),
        media_type=_text(told, "media_type")[:_WORDS_MAX],
        name=_text(told, "name")[:_WORDS_MAX],
    )


def _exit_code(value: Any) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise ValueError("exit_code is none")
    return value


def _count(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name, 0)
    if type(value) is not int or not 0 <= value < _COUNT_MAX:
        raise ValueError(f"{name} is no count")
    return value


def _seconds(event: Mapping[str, Any], name: str) -> float:
    value = event.get(name, 0.0)
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value < _SECONDS_MAX:
        raise ValueError(f"{name} is no time")
    return float(value)


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def _names(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or len(value) > _CALLS_MAX:
        raise ValueError(f"{name} is no list of names")
    if not all(isinstance(each, str) and len(each) < 256 for each in value):
        raise ValueError(f"{name} is no list of names")
    return value


class Waiting:
    """Steps of one call that were said and not taken yet, bounded: all but the first is counted."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self._bytes = 0

    def put(self, step: Step) -> None:
        """One more. Raises ValueError for more than any call gives."""
        last = self._steps[-1] if self._steps else None
        if isinstance(last, Spooled) and isinstance(step, Spooled):
            self._steps.pop()  # the later says it all
        self._steps.append(step)
        self._bytes += _weight(step)
        if self._bytes > _WAITING_MAX:
            raise ValueError("it said more of a call than a call gives")

    def take(self) -> Step | None:
        """The next, if there is one."""
        if not self._steps:
            return None
        step = self._steps.popleft()
        self._bytes -= _weight(step)
        return step


def _weight(step: Step) -> int:
    # A result is one frame, and the last: its size is bounded as it is.
    match step:
        case Output():
            return len(step.data) + 512
        case Started():
            return 512
    return 0
