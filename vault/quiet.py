"""What the vault's process logs: nothing of what passes through it.

Libraries log URLs, headers and replies in their details, and an exception's text may quote what it
could not read. So below WARNING nothing of theirs is written, whatever level is set; an exception
is written as its kinds and places, with the words of our own errors alone; and what still has a
secret of a request under way, a URL's query or user, or a token, loses it. `install` comes after
`carpal.logs.setup`.
"""

import logging
import re
import traceback

from carpal.errors import CarpalError
from vault.guard.errors import GuardError
from vault.redact.under_way import struck_out

LIBRARIES = ("asyncio", "grpc", "h11", "httpcore2", "httpx2", "mcp", "starlette", "uvicorn")
MARK = "[REDACTED]"
_SHAPES = (
    (re.compile(r"(?<=://)[^/\s?#@'\"]*@"), MARK + "@"),
    (re.compile(r"(?<=[?&])([\w.~-]+)=[^&\s'\"#]+"), r"\1=" + MARK),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 " + MARK),
    (re.compile(r"\bav[sp]_[\w.-]{8,}"), MARK),
)
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}


def cleaned(text: str) -> str:
    """A text without secrets of requests under way, and without what looks like one."""
    text = struck_out(text)
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


class Quiet(logging.Filter):
    """Of a handler: drops what libraries chatter, and cleans the rest."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written; the record is changed to what may be."""
        of_library = record.name.partition(".")[0] in LIBRARIES
        if record.levelno < logging.WARNING and of_library:
            return False
        text = record.getMessage()
        if record.exc_info:
            if of_library:  # asyncio's has the exception's words again, and a callback's arguments
                text = text.partition("\n")[0].partition("(")[0]
            text = f"{text} ({_kinds(record.exc_info[1])})"
        record.msg, record.args = cleaned(text), None
        record.exc_info = record.exc_text = record.stack_info = None
        for name, value in list(record.__dict__.items()):
            if name not in _STANDARD and not isinstance(value, int | float | bool | None):
                record.__dict__[name] = cleaned(str(value))
        return True


def install(*handlers: logging.Handler) -> None:
    """Put the filter before everything that is written; by default the root logger's handlers."""
    for handler in handlers or logging.getLogger().handlers:
        if not any(isinstance(each, Quiet) for each in handler.filters):
            handler.addFilter(Quiet())
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def _kinds(error: BaseException | None) -> str:
    """An exception and what it came from: kinds and places, and the words of our own alone."""
    told: list[str] = []
    while error is not None and len(told) < 8:
        frames = traceback.extract_tb(error.__traceback__)
        where = (
            f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
        )
        said = f": {error}" if isinstance(error, CarpalError | GuardError) else ""
        said = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else said
        told.append(f"{type(error).__name__}{where}{said}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return " from ".join(told)
