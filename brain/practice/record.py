"""What was asked, kept for tests and demos: the newest thousand requests.

Times are of the machine's monotonic clock, in seconds, so that processes on
one machine can compare them. Keys and other headers are not kept.
"""

import asyncio
import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

KEPT = 1_000
BODY_BYTES = 32 * 1024 * 1024
"""Of bodies kept in all; the oldest go first, their entries stay."""


@dataclass
class Entry:
    """One request."""

    method: str
    path: str
    request_id: str
    retry: int
    """Which attempt of the client's own retries this is, from 0."""
    arrived: float = field(default_factory=time.monotonic)
    number: int = 0
    """1, 2, 3, …; given when its body is here."""
    answered: float | None = None
    """When the first byte of the answer was sent."""
    status: int | None = None
    played: str | None = None
    """`instructions`, or a script's name and turn."""
    raw: bytes = b""

    def answer(self, status: int) -> None:
        """Note that the answer began."""
        self.answered, self.status = time.monotonic(), status

    def facts(self) -> dict[str, Any]:
        """As `GET /practice/requests` shows it; body null when dropped or not JSON."""
        return {
            "number": self.number,
            "arrived": self.arrived,
            "answered": self.answered,
            "method": self.method,
            "path": self.path,
            "request_id": self.request_id,
            "retry": self.retry,
            "status": self.status,
            "played": self.played,
            "body": _parsed(self.raw),
        }


class Record:
    """A bounded ring of entries that can be waited on."""

    def __init__(self, body_bytes: int = BODY_BYTES) -> None:
        self._body_bytes = body_bytes
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._count = 0
        self._bytes = 0
        self._news = asyncio.Event()

    def add(self, entry: Entry) -> None:
        """Number an entry and keep it; a second time does nothing."""
        if entry.number:
            return
        self._count += 1
        entry.number = self._count
        if len(self._entries) == KEPT:
            self._bytes -= len(self._entries[0].raw)
        self._entries.append(entry)
        self._bytes += len(entry.raw)
        for old in self._entries:
            if self._bytes <= self._body_bytes:
                break
            self._bytes -= len(old.raw)
            old.raw = b""
        self._news.set()
        self._news = asyncio.Event()

    def since(self, number: int) -> list[Entry]:
        """Entries with a higher number, oldest first."""
        return [entry for entry in self._entries if entry.number > number]

    async def wait(self, number: int, seconds: float) -> list[Entry]:
        """The same, once there is one or `seconds` have passed."""
        try:
            async with asyncio.timeout(seconds):
                while self._count <= number:
                    await self._news.wait()
        except TimeoutError:
            pass  # nothing came: the answer is the empty list
        return self.since(number)


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None
