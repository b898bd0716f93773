"""A phone's screen as pictures that the model sees as they are, and where a place in one lies."""

import zlib
from dataclasses import dataclass

from carpal.pictures import BYTES_MAX, Fit, fit
from hands.android import said
from hands.api import ToolError
from hands.computer import Box
from hands.pictures import fitting, header

BYTES_TAKEN = 48 * 1024 * 1024
"""Of a screenshot as the phone makes it: the largest screens have 32 MB of pixels."""
_PNG = b"\x89PNG\r\n\x1a\n"
_BEFORE = 4096
"""Bytes within which a PNG must begin: some phones say something first."""
_AGAIN = "take it again; if that stays so, restart the phone"
_LARGER_MAX = 8


@dataclass(frozen=True)
class Shot:
    """What a phone's screen showed."""

    data: bytes
    """A PNG, of its own pixels."""
    fit: Fit
    """How large the model sees it."""

    async def whole(self) -> tuple[bytes, str]:
        """As the model sees it, with its media type. Raises ToolError."""
        if not self.fit.scaled and len(self.data) <= BYTES_MAX:
            return self.data, "image/png"
        box = (0, 0, self.fit.of_width, self.fit.of_height)
        return await _made(self.data, box, self.fit)

    async def part(self, box: Box) -> tuple[bytes, str, Fit]:
        """What a box of it shows, as the model sees that, as large as it can be, and its size."""
        one = self.fit
        begin, end = one.back(box.left, box.top), one.back(box.right - 1, box.bottom - 1)
        native = (*begin, end[0] + 1, end[1] + 1)
        wide, high = native[2] - native[0], native[3] - native[1]
        larger = max(1.0, min(_LARGER_MAX, one.width / wide, one.height / high))
        seen = fit(round(wide * larger), round(high * larger))
        return (*await _made(self.data, native, seen), seen)


def read(data: bytes) -> Shot:
    """What `screencap -p` wrote. Raises ToolError, which says what it is instead."""
    begin = data.find(_PNG, 0, _BEFORE)
    if begin < 0:
        words = said.line(data[:4096]) if data else ""
        raise ToolError(f"the phone gave no screenshot, but {words!r}: {_AGAIN}")
    picture = data[begin:]
    found = header.read(picture)
    if found is None or not _whole(picture):
        raise ToolError(f"the phone's screenshot is damaged, or cut: {_AGAIN}")
    if found.width * found.height > fitting.PIXELS_MAX:
        size = f"{found.width}x{found.height}"
        raise ToolError(f"the phone's screenshot has {size} pixels, more than are scaled")
    return Shot(picture, fit(found.width, found.height))


def _whole(data: bytes) -> bool:
    """Whether each part of a PNG is there, with the sum it says, up to its end."""
    at = len(_PNG)
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        end = at + 12 + size
        if end > len(data):
            return False
        kind = data[at + 4 : at + 8]
        if zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            return False
        if kind == b"IEND":
            return True
        at = end
    return False


async def _made(data: bytes, box: tuple[int, int, int, int], size: Fit) -> tuple[bytes, str]:
    """That part of it at that size. Raises ToolError."""
    made = await fitting.part(data, box, size.width, size.height)
    if isinstance(made, fitting.LeftOut):
        raise ToolError(f"the phone's screenshot cannot be scaled: {made.why}")
    found = header.read(made.data)
    if found is None or (found.width, found.height) != (size.width, size.height):
        raise ToolError(f"the phone's screenshot is damaged: {_AGAIN}")
    return made.data, made.media_type
