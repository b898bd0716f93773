"""Pictures for tests, made without a library: PNGs of one grey, and of a size they only say."""

import struct
import zlib

BEGINS = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    """One part of the file."""
    checked = kind + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))


def head(width: int, height: int) -> bytes:
    """The part that says the size."""
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))


def png(width: int = 2, height: int | None = None) -> bytes:
    """A picture that any viewer shows."""
    height = width if height is None else height
    row = b"\0" + b"\x7f" * width
    packer = zlib.compressobj()
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    return BEGINS + head(width, height) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def lying(width: int, height: int) -> bytes:
    """One that says this size, and has two pixels."""
    return BEGINS + head(width, height) + chunk(b"IDAT", zlib.compress(b"\0\x7f\x7f"))
