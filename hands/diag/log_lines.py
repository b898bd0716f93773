"""The recent log, as far as it is this program's own words.

A line is kept when its text is one that our code logs, word for word, with those of its fields that
are about the daemon; a traceback's lines lose all but the places and the kinds of errors. So what
came from elsewhere, such as what runs in hands, is not in it whatever it says.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

_FIELDS = frozenset({
    *("why", "reason", "problem", "identity", "brain", "address", "type", "epoch", "hands"),
    *("calls", "expires", "version", "at", "by", "to", "proxy", "method", "incident", "hand_id"),
    *("offset", "file", "kept_as", "socket", "peer", "path", "what", "types", "serial", "seconds"),
})  # fmt: skip
_VALUE_MAX = 400
_LOGGED = re.compile(r'\blog(?:ger)?\.\w+\(\s*"([^"\\]+)"')
_CONSOLE = re.compile(
    r"(?P<timestamp>[\dT:.+-]{10,32}Z?) \[(?P<level>[a-z]+) *\] (?P<event>.*?) *"
    r"\[(?P<logger>[\w.]+)\] ?(?P<rest>.*)"
)
_PAIR = re.compile(r"(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\S*)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TIME = re.compile(r"[\dT:.+-]{10,32}Z?")
_PLACE = re.compile(r'\s*File ".*?((?:carpal|hands)/[\w/]+\.py|[\w]+\.py)", line (\d+), in (\w+)')
_RAISED = re.compile(r"[ |+-]*((?:\w+\.)*\w*(?:Error|Exception|Group|Refused|Lost|Failed))\b:?.*")
_LEVELS = frozenset({"debug", "info", "warning", "error", "critical", "exception"})


def kept(lines: Iterable[str], clean: Callable[[str], str]) -> Iterator[str]:
    """What of a log is shown, each field by `clean`; at the end, how many lines were left out."""
    left = 0
    for line in lines:
        shown = _line(_COLOUR.sub("", line.rstrip("\r\n")), clean)
        if shown is None:
            left += bool(line.strip())
        else:
            yield shown
    if left:
        yield f"({left} lines that are not this program's own words were left out)"


def _line(line: str, clean: Callable[[str], str]) -> str | None:
    if found := _PLACE.match(line):
        return f"    {found[1]}:{found[2]} in {found[3]}"
    if found := _RAISED.fullmatch(line):
        return f"    {found[1]}"
    fields = _of_json(line) if line.startswith("{") else _of_console(line)
    if fields is None:
        return None
    event, level, logger = (str(fields.pop(name, "")) for name in ("event", "level", "logger"))
    time = str(fields.pop("timestamp", ""))
    if event not in ours() or level not in _LEVELS or not _TIME.fullmatch(time):
        return None
    parts = [time, level, event, f"[{logger}]" if logger.split(".")[0] in _PARTS else "[]"]
    for name, value in fields.items():
        if name in _FIELDS:
            parts.append(f"{name}={clean(str(value))[:_VALUE_MAX]!r}")
        elif name == "exception":
            parts += [shown for one in str(value).splitlines() if (shown := _line(one, clean))]
    return " ".join(parts)


_PARTS = frozenset({"carpal", "hands"})


def _of_json(line: str) -> dict[str, object] | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _of_console(line: str) -> dict[str, object] | None:
    found = _CONSOLE.fullmatch(line)
    if found is None:
        return None
    fields: dict[str, object] = {name: found[name] for name in ("timestamp", "level", "logger")}
    fields["event"] = found["event"].strip()
    for name, value in _PAIR.findall(found["rest"]):
        fields.setdefault(name, value.strip("'\""))
    return fields


@cache
def ours() -> frozenset[str]:
    """Every text that the code of a daemon logs."""
    root = Path(__file__).resolve().parents[2]
    found: set[str] = set()
    for part in ("carpal", "hands"):
        for path in (root / part).rglob("*.py"):
            found.update(_LOGGED.findall(path.read_text("utf-8")))
    return frozenset(found)
