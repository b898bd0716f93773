"""Frames between a tunnel's process in a hand and the daemon: a letter, a length, then the data.

Used at both ends. What comes from a hand is bounded, and otherwise as good as anything it says.
"""

import json
import struct

HEADER = struct.Struct(">cI")
"""The letter, and how many bytes follow, big endian."""
FRAME_MAX = 64 * 1024
"""Bytes of data in one."""

DATA = b"D"
"""Bytes, as they are, either way."""
ERROR = b"E"
"""Bytes that a shell without a terminal says as an error."""
RESIZE = b"R"
"""The terminal has another size now: JSON, `rows` and `columns`."""
END = b"Z"
"""No more bytes this way."""
EXIT = b"X"
"""The last of what comes out: JSON, with `code`, `problem` and `said` as far as there are any."""
_KINDS = frozenset({DATA, ERROR, RESIZE, END, EXIT})


def framed(kind: bytes, data: bytes | memoryview = b"") -> bytes:
    """Frames of that data: one for each `FRAME_MAX` of it, and one of nothing."""
    pieces = []
    for begin in range(0, len(data) or 1, FRAME_MAX):
        piece = bytes(data[begin : begin + FRAME_MAX])
        pieces.append(HEADER.pack(kind, len(piece)) + piece)
    return b"".join(pieces)


def told(kind: bytes, **facts: object) -> bytes:
    """A frame of JSON."""
    return framed(kind, json.dumps(facts).encode())


def sized(header: bytes) -> tuple[bytes, int]:
    """The letter and the length that a header says. ValueError for what is none."""
    kind, size = HEADER.unpack(header)
    if kind not in _KINDS or size > FRAME_MAX:
        raise ValueError(f"a frame {kind!r} of {size} bytes")
    return kind, size


class Parser:
    """Frames out of bytes as they come."""

    def __init__(self) -> None:
        self._in = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The frames that are whole now. ValueError for what is none."""
        self._in += data
        whole = []
        while len(self._in) >= HEADER.size:
            kind, size = sized(bytes(self._in[: HEADER.size]))
            if len(self._in) < HEADER.size + size:
                break
            whole.append((kind, bytes(self._in[HEADER.size : HEADER.size + size])))
            del self._in[: HEADER.size + size]
        return whole
