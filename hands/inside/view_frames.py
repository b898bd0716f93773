"""Frames in a tunnel by which a person watches a hand and controls it: a letter, a length, data.

Pictures come one at a time: the hand sends the next once it was told that the last was seen, and
then the newest. What comes from the other end is bounded here. Pure.
"""

import struct
from collections.abc import Collection

HEADER = struct.Struct(">cI")
"""The letter, and how many bytes follow, big endian."""
PICTURE_MAX = 2 * 1024 * 1024
EVENT_MAX = 1024

PNG, JPEG = b"P", b"J"
"""From the hand: how it looks now."""
SEEN = b"S"
"""From the person: the last picture was seen. Of nothing."""
EVENT = b"E"
"""From the person who has control: see `hands/controls.py`."""

PICTURES = {PNG: "image/png", JPEG: "image/jpeg"}
_MOST = {PNG: PICTURE_MAX, JPEG: PICTURE_MAX, SEEN: 0, EVENT: EVENT_MAX}


def framed(kind: bytes, data: bytes = b"") -> bytes:
    """One frame. ValueError for more data than one has."""
    if len(data) > _MOST[kind]:
        raise ValueError(f"{len(data)} bytes, and at most {_MOST[kind]} fit")
    return HEADER.pack(kind, len(data)) + data


class Parser:
    """Frames of these kinds out of bytes as they come."""

    def __init__(self, kinds: Collection[bytes]) -> None:
        self._kinds = kinds
        self._in = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The frames that are whole now. ValueError for what is none."""
        self._in += data
        whole = []
        while len(self._in) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._in)
            if kind not in self._kinds or size > _MOST[kind]:
                raise ValueError(f"a frame {kind!r} of {size} bytes")
            if len(self._in) < HEADER.size + size:
                break
            whole.append((kind, bytes(self._in[HEADER.size : HEADER.size + size])))
            del self._in[: HEADER.size + size]
        return whole
