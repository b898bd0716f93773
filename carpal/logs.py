"""Logging at the edge: modules use `logging`, structlog renders.

Lines go to stderr: key=value for people, one JSON object a line for machines.
"""

import logging
import sys
from collections.abc import Mapping
from typing import Literal, TypeAlias

import structlog

Level: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]
_NOISY = ("asyncio", "grpc", "httpx2", "httpcore2", "anthropic", "uvicorn.access")


_own: set[str] = set()
"""Loggers that were given a level of their own."""


def setup(
    *, json: bool = False, level: Level = "info", of: Mapping[str, Level] | None = None
) -> None:
    """Send every logger's records to stderr, with their `extra` fields; `of` is as in `levels`."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
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
