"""The process that decodes one picture and scales it: `python -I scaler.py OLD NEW LONGEST [BOX]`.

A hand made the picture, and what decodes it is a library in C. So it happens in a process of its
own, with little memory and time, which can open nothing once it begins, and as root is nobody.
The picture is standard input, a file; what is made of it standard output. OLD and NEW are sizes,
`WIDTHxHEIGHT`; LONGEST is how many bytes may be written; BOX, `LEFT,TOP,RIGHT,BOTTOM`, is the part
of it that is made NEW. Exit code 0, or how it is not done.

It imports nothing of ours: it is started without our paths.
"""

import io
import os
import resource
import sys
import warnings
from typing import Any

DAMAGED, TOO_LARGE, NO_MEMORY, NO_LIBRARY = 3, 4, 5, 6
"""Exit codes."""
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
_MEMORY = 640 * 1024 * 1024
"""Bytes of addresses: some 32 million pixels of four bytes, twice, and Python with the library."""
_SECONDS = 10
"""Of a processor."""
_NOBODY = 65534
_QUALITY = 85
_PNG_MAX = 1024 * 1024
"""Bytes beyond which a PNG, so a photograph, becomes a JPEG: requests carry it again and again."""
_ORIENTATION = 0x0112
"""The tag of EXIF that says how a camera was held."""


def main(old: str, new: str, longest: str, part: str = "") -> int:
    """Do it; the exit code."""
    # A warning is of what is odd and can be shown all the same; what is too large is found below.
    warnings.simplefilter("ignore")
    data = sys.stdin.buffer.read()
    try:
        from PIL import Image, ImageFile

        _warm(Image)
    except Exception:  # noqa: BLE001 - a library that is broken, or lacks a part, raises anything
        return NO_LIBRARY
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    _confine(int(longest))
    size, target = _size(old), _size(new)
    box = tuple(int(each) for each in part.split(",")) if part else None
    Image.MAX_IMAGE_PIXELS = size[0] * size[1]
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.size != size:
                return DAMAGED
            scaled = _scaled(image, target, Image, box)
            made = _encoded(scaled, image.format == "JPEG", int(longest))
    except MemoryError:
        return NO_MEMORY
    except Exception:  # noqa: BLE001 - whatever a decoder makes of nonsense; all of it is that
        return DAMAGED
    if not made:
        return TOO_LARGE
    sys.stdout.buffer.write(made)
    sys.stdout.buffer.flush()
    return 0


def _warm(module: Any) -> None:
    """Load what the library loads when it first needs it: files can be opened now."""
    for form in _FORMATS:
        out, exif = io.BytesIO(), module.Exif()
        exif[_ORIENTATION] = 6
        module.new("RGB", (2, 2)).save(out, form, exif=exif.tobytes())
        with module.open(out, formats=_FORMATS) as image:
            _encoded(_scaled(image, (1, 1), module), form == "JPEG", 1000)
    _encoded(module.new("RGBA", (1, 1)), True, 1000)


def _confine(longest: int) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, _SECONDS),
        (resource.RLIMIT_FSIZE, longest),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 3),  # the three that are open
    ):
        resource.setrlimit(kind, (most, most))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return int(width), int(height)


def _scaled(
    image: Any, target: tuple[int, int], module: Any, box: tuple[int, ...] | None = None
) -> Any:
    """Its first frame, or a part of it, at the target's size, the way up its camera was held."""
    how = image.getexif().get(_ORIENTATION, 1)
    if box is None:
        image.draft("RGB", target)  # a JPEG is decoded no larger than it needs to be
    image.load()
    if image.mode.startswith("I;16"):
        image = image.point(lambda value: value / 256).convert("L")
    elif image.mode not in ("L", "RGB", "RGBA"):
        clear = "transparency" in image.info or image.mode in ("LA", "PA", "La", "RGBa")
        image = image.convert("RGBA" if clear else "RGB")
    if box is not None:
        image = image.crop(box)
    if image.size != target:
        image = image.resize(target, module.Resampling.LANCZOS, reducing_gap=3.0)
    turn = module.Transpose
    turns = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    return image.transpose(turns[how]) if how in turns else image


def _encoded(image: Any, photograph: bool, longest: int) -> bytes:
    """As PNG, or as JPEG what is smaller so; empty when it is too large whatever is done."""
    if not photograph:
        out = io.BytesIO()
        image.save(out, "PNG")
        if out.tell() <= min(_PNG_MAX, longest):
            return out.getvalue()
    if image.mode == "RGBA":
        from PIL import Image

        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image.getchannel("A"))
        image = white
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue() if out.tell() <= longest else b""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
