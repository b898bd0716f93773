"""Server-sent events as they come in, each bounded, and all of them. Pure."""

import re

_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)
"""The end of a line. A CR at the end of what came may be half of one: it waits."""
EVENTS_MAX = 100_000
"""Events of one answer; comments are counted too."""


class TooMuch(Exception):
    """An event, or all of them, are more than is taken."""


class Events:
    """One stream."""

    def __init__(self, event_max: int) -> None:
        self._most = event_max
        self._line = b""
        self._data: list[bytes] = []
        self._size = 0
        self._kind = b""
        self._seen = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each message that is whole by now. Raises TooMuch."""
        found: list[bytes] = []
        whole = self._line + data if self._line else data
        at = 0
        for end in _END.finditer(whole):
            self._take(whole[at : end.start()], found)
            at = end.end()
        self._line = whole[at:]
        if len(self._line) + self._size > self._most:
            raise TooMuch
        return found

    def _take(self, line: bytes, found: list[bytes]) -> None:
        if not line:
            if self._data and self._kind in (b"", b"message"):
                found.append(b"\n".join(self._data))
            self._data, self._size, self._kind = [], 0, b""
            self._count()
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            if value:  # an empty one only says that the stream may be taken up again: not with us
                self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._most:
                raise TooMuch
        elif name == b"event":
            self._kind = value
        elif not name:
            self._count()

    def _count(self) -> None:
        self._seen += 1
        if self._seen > EVENTS_MAX:
            raise TooMuch
