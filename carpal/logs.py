"""Logging at the edge: modules use `logging`, this sends their records to stderr as lines.

For people `time [level] what happened [logger] key=value`, for machines one JSON object a line.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

Level: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]
_NOISY = ("asyncio", "grpc", "httpx2", "httpcore2", "anthropic", "uvicorn.access")
_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
"""What else a record holds was its caller's `extra`."""
_QUOTED = frozenset(" =\"'")
"""A value with one of these, or with what no terminal should obey, stands in quotes."""
_COLOURS = {"debug": 32, "info": 32, "warning": 33, "error": 31, "critical": 31}


_own: set[str] = set()
"""Loggers that were given a level of their own."""


def setup(
    *, json: bool = False, level: Level = "info", of: Mapping[str, Level] | None = None
) -> None:
    """Send every logger's records to stderr, with their `extra` fields; `of` is as in `levels`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ForMachines() if json else ForPeople(colours=sys.stderr.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    levels(level, of or {})


def levels(level: Level, of: Mapping[str, Level]) -> None:
    """What is logged from now on; `of` has those of single loggers and what is below them."""
    for name in _own:
        logging.getLogger(name).setLevel(logging.NOTSET)
    _own.clear()
    logging.getLogger().setLevel(level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name, its in of.items():
        logging.getLogger(name).setLevel(its.upper())
    _own.update(of)


class ForMachines(logging.Formatter):
    """One JSON object a line; what JSON has no word for is the text by which Python shows it."""

    def format(self, record: logging.LogRecord) -> str:
        """`event`, `level`, `logger`, the record's own fields, `timestamp`, and any `exception`."""
        told: dict[str, Any] = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            **_extra(record),
            "timestamp": _time(record),
        }
        if raised := _raised(self, record):
            told["exception"] = raised
        return json.dumps(told, default=repr)


class ForPeople(logging.Formatter):
    """One line, its fields in the order of their names, and below it any traceback."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """The columns are the same for every line that is not too long for them."""
        level = record.levelname.lower()
        padded, event = f"{level:9}", f"{record.getMessage():30}"
        if self._colours:
            padded = f"\x1b[{_COLOURS.get(level, 0)}m{padded}\x1b[0m"
            event = f"\x1b[1m{event}\x1b[0m"
        fields = "".join(
            f" {name}={_shown(value)}" for name, value in sorted(_extra(record).items())
        )
        line = f"{_time(record)} [{padded}] {event} [{record.name}]{fields}"
        raised = _raised(self, record)
        return f"{line}\n{raised}" if raised else line


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: its for name, its in vars(record).items() if name not in _OF_EVERY_RECORD}


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _raised(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[1] is not None:
        return formatter.formatException(record.exc_info)
    return ""


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    return value if value.isprintable() and not _QUOTED & set(value) else repr(value)
