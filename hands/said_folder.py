"""What a hand's own process says unasked, as files: they are there whoever is killed, until read.

A file is whole or not there. Its name begins with when it was said, so that names are in order.
"""

import json
import os
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from hands.contract import Event

FOLDER = "said"
_AT_ONCE = 64
"""Files that are read at one look."""
_LISTED = 4096
"""Names that one look goes through: of a hand that wrote more the order is not kept."""
_FILE_MAX = 64 * 1024
"""Bytes of one that are read: more is no event."""


def put(folder: Path, kind: str, data: Mapping[str, Any], event_id: str = "") -> None:
    """Say something. TypeError or ValueError when `data` is no JSON."""
    said = json.dumps({"event_id": event_id or uuid.uuid4().hex, "kind": kind, "data": dict(data)})
    folder.mkdir(mode=0o700, exist_ok=True)
    name = f"{time.time_ns():020}-{uuid.uuid4().hex}"
    written = folder / f".{name}"
    written.write_text(said, encoding="utf-8")
    written.rename(folder / name)


def said(folder: Path) -> Iterator[tuple[Path, Event]]:
    """The oldest files, and what each says; of one that says nothing, what is no event."""
    try:
        with os.scandir(folder) as there:
            names = sorted(each.name for each in islice(there, _LISTED) if each.name[0] != ".")
    except OSError:
        return
    for path in (folder / name for name in names[:_AT_ONCE]):
        yield path, _event(path)


def forget(path: Path) -> None:
    """It is told."""
    with suppress(OSError):
        path.unlink()


def _event(path: Path) -> Event:
    try:
        given = json.loads(_text(path))
        return Event(str(given["event_id"]), str(given["kind"]), dict(given["data"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Event("", "", {})


def _text(path: Path) -> str:
    # It is the hand's folder: what is there may be anything.
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ValueError("it is no file")
        data = file.read(_FILE_MAX + 1)
    if len(data) > _FILE_MAX:
        raise ValueError("it is too large")
    return data.decode()
