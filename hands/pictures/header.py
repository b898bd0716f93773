"""What a picture says of itself in its first bytes: its kind and its size. Pure.

Nothing is decoded: a picture may say that it has any size, and nothing here grows with that.
"""

from dataclasses import dataclass
from typing import Literal

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG's markers that say a size."""
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Its markers without a length."""


@dataclass(frozen=True)
class Header:
    """Kind and size, as a picture says them."""

    media_type: str
    width: int
    height: int


def read(data: bytes) -> Header | None:
    """Of a PNG, JPEG, GIF, WebP or BMP with any pixels; None of anything else, and of damage."""
    found = _read(data)
    return found if found is not None and found.width > 0 and found.height > 0 else None


def _read(data: bytes) -> Header | None:
    if data.startswith(_PNG):
        return _of("image/png", data, 16, 4, "big") if data[12:16] == b"IHDR" else None
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _of("image/gif", data, 6, 2, "little")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data.startswith(b"BM"):
        if _little(data[14:18]) == 12:  # of OS/2
            return _of("image/bmp", data, 18, 2, "little")
        height = int.from_bytes(data[22:26], "little", signed=True)
        width = int.from_bytes(data[18:22], "little", signed=True)
        return Header("image/bmp", width, abs(height))  # below 0 it stands on its head
    return _jpeg(data) if data.startswith(_JPEG) else None


def _of(
    kind: str, data: bytes, at: int, size: int, order: Literal["big", "little"]
) -> Header | None:
    """Two numbers beside each other, of so many bytes each."""
    if len(data) < at + 2 * size:
        return None
    width, height = data[at : at + size], data[at + size : at + 2 * size]
    return Header(kind, int.from_bytes(width, order), int.from_bytes(height, order))


def _webp(data: bytes) -> Header | None:
    if len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = data[24:27], data[27:30]
        return Header("image/webp", _little(width) + 1, _little(height) + 1)
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = _little(data[21:25])
        return Header("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = data[26:28], data[28:30]
        return Header("image/webp", _little(width) & 0x3FFF, _little(height) & 0x3FFF)
    return None


def _jpeg(data: bytes) -> Header | None:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
        elif marker in _ALONE:
            at += 2
        elif marker in _FRAMES:
            height, width = data[at + 5 : at + 7], data[at + 7 : at + 9]
            return Header("image/jpeg", int.from_bytes(width, "big"), int.from_bytes(height, "big"))
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return None


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
