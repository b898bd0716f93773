"""The console's screen as pictures: whole, or a part of it, larger by a whole number."""

import io
from typing import TYPE_CHECKING

from hands.computer import Box

if TYPE_CHECKING:
    from PIL.Image import Image

NATIVE = (160, 144)
"""Pixels that the console draws, across and down."""
SCALE = 4
"""A screenshot has so many pixels for each of them, across and down: a model sees it well."""
SIZE = (NATIVE[0] * SCALE, NATIVE[1] * SCALE)
"""Of a screenshot."""


def native(frame: "Image") -> bytes:
    """A pixel for each that the console draws, as PNG: for who watches, and often."""
    return _png(frame, 1)


def whole(frame: "Image") -> bytes:
    """A screenshot, as PNG."""
    return _png(frame, SCALE)


def part(frame: "Image", box: Box) -> tuple[bytes, tuple[int, int]]:
    """What a box of a screenshot shows, as large as it can be, as PNG; and its size.

    Pixels that are in it in part are in it.
    """
    left, top = box.left // SCALE, box.top // SCALE
    right, bottom = -(-box.right // SCALE), -(-box.bottom // SCALE)
    width, height = right - left, bottom - top
    scale = min(SIZE[0] // width, SIZE[1] // height)
    cropped = frame.crop((left, top, right, bottom))
    return _png(cropped, scale), (width * scale, height * scale)


def _png(frame: "Image", scale: int) -> bytes:
    from PIL import Image

    size = (frame.width * scale, frame.height * scale)
    picture = frame.convert("RGB").resize(size, Image.Resampling.NEAREST)
    data = io.BytesIO()
    # A game has few colours: so it is a third of the size, and nothing is lost.
    colours = picture.getcolors(maxcolors=256)
    if colours is not None:
        picture = picture.quantize(max(2, len(colours)))
    picture.save(data, "PNG", optimize=True)
    return data.getvalue()
