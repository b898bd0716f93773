"""A picture that leaves a hand, made what the model takes before it is a blob, or left out.

Most are that already, and pass as they are: nothing is decoded. The others are scaled, each in a
process of its own (`hands/pictures/scaler.py`), which needs Pillow, and one of a hand at a time.
Whatever a hand gives, a result says what became of it, and the daemon's memory and event loop stay
its own.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from weakref import WeakKeyDictionary

from carpal import extras
from carpal.pictures import BYTES_MAX, MEDIA_TYPES, Fit, fit
from hands.pictures import header, scaler
from hands.pictures.turns import Turns

TAKEN_MAX = 5 * 1024 * 1024
"""Bytes of a picture, as a hand gives it."""
PIXELS_MAX = 32_000_000
"""Of one that is scaled; decoded it takes four bytes each, and a copy."""
SECONDS = 10.0
"""For one, once it is its turn."""
TURN_SECONDS = 15.0
"""Until it is: the longest that one of another hand takes, and time for others that came before."""
AT_ONCE = 2
"""Of different hands, in one daemon: each may take 300 MB."""
INSTALL = f"where the daemon runs, {extras.how('images')}"
_SCALER = Path(scaler.__file__)
_WHY = {
    scaler.DAMAGED: "it is damaged",
    scaler.TOO_LARGE: "it has too many bytes even when it is scaled",
    scaler.NO_MEMORY: "to scale it takes too much memory",
    scaler.NO_LIBRARY: f"Pillow, which scales it, cannot be loaded: {INSTALL}",
    -signal.SIGXCPU: f"it was not scaled within {SECONDS:g} s",
    -signal.SIGKILL: "what scales it was killed: the machine has too little memory, perhaps",
}
_BUSY = "pictures of other hands are being scaled, and its turn did not come within {:g} s"
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


@dataclass(frozen=True)
class Fitted:
    """A picture that the model takes."""

    data: bytes
    media_type: str
    remark: str = ""
    """What was done to it; empty for nothing."""


@dataclass(frozen=True)
class LeftOut:
    """One that it does not."""

    why: str


async def fitted(data: bytes, whose: str = "") -> Fitted | LeftOut:
    """The picture as the model takes it; `whose` names the hand that gave it."""
    found = header.read(data)
    if found is None:
        return LeftOut("it is damaged, or no PNG, JPEG, GIF, WebP or BMP")
    size = f"{found.width}x{found.height}"
    made = fit(found.width, found.height)
    if not made.scaled and len(data) <= BYTES_MAX and found.media_type in MEDIA_TYPES:
        return Fitted(data, found.media_type)
    if found.width * found.height > PIXELS_MAX:
        return LeftOut(f"it has {size} pixels, more than the {PIXELS_MAX} that are scaled")
    if find_spec("PIL") is None:
        seen = f"no more than {made.width}x{made.height} of its {size} pixels"
        what = seen if made.scaled else f"no {found.media_type} of {len(data)} bytes"
        return LeftOut(f"the model sees {what}, and Pillow, which scales it, is missing: {INSTALL}")
    return await _scaled(data, found.media_type, made, whose=whose)


async def part(
    data: bytes, box: tuple[int, int, int, int], width: int, height: int
) -> Fitted | LeftOut:
    """A part of a picture, made a picture of that size. The box is in its pixels, and inside."""
    found = header.read(data)
    if found is None:
        return LeftOut("it is damaged, or no PNG, JPEG, GIF, WebP or BMP")
    if found.width * found.height > PIXELS_MAX:
        size = f"{found.width}x{found.height}"
        return LeftOut(f"it has {size} pixels, more than the {PIXELS_MAX} that are scaled")
    if find_spec("PIL") is None:
        return LeftOut(f"Pillow, which scales it, is missing: {INSTALL}")
    return await _scaled(
        data, found.media_type, Fit(width, height, found.width, found.height), box=box
    )


async def _scaled(
    data: bytes,
    media_type: str,
    made: Fit,
    *,
    box: tuple[int, int, int, int] | None = None,
    whose: str = "",
) -> Fitted | LeftOut:
    turns = _turns.setdefault(asyncio.get_running_loop(), Turns(AT_ONCE, time.monotonic))
    try:
        async with turns.turn(whose, TURN_SECONDS):
            out = await _run(data, made, box)
    except TimeoutError:
        return LeftOut(_BUSY.format(TURN_SECONDS))
    if isinstance(out, LeftOut):
        return out
    found = header.read(out)
    sizes = ((made.width, made.height), (made.height, made.width))  # a camera may be held upright
    if found is None or (found.width, found.height) not in sizes or len(out) > BYTES_MAX:
        return LeftOut("what scales pictures made no picture of it")
    now = f"{found.width}x{found.height}"
    if made.scaled:
        return Fitted(
            out, found.media_type, f"scaled from {made.of_width}x{made.of_height} to {now}"
        )
    return Fitted(
        out, found.media_type, f"{media_type} of {len(data)} bytes, made {found.media_type}"
    )


async def _run(data: bytes, made: Fit, box: tuple[int, int, int, int] | None) -> bytes | LeftOut:
    """What the scaler writes."""
    with contextlib.ExitStack() as stack:
        given, taken = _memory(stack, "given"), _memory(stack, "taken")
        await asyncio.to_thread(_write, given, data)
        old, new = f"{made.of_width}x{made.of_height}", f"{made.width}x{made.height}"
        only = [",".join(map(str, box))] if box else []
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", str(_SCALER), old, new, str(BYTES_MAX), *only),
                stdin=given,
                stdout=taken,
                stderr=asyncio.subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return LeftOut(f"what scales it cannot be started: {error.strerror}")
        try:
            async with asyncio.timeout(SECONDS):
                code = await process.wait()
        except TimeoutError:
            return LeftOut(f"it was not scaled within {SECONDS:g} s")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code:
            return LeftOut(_WHY.get(code, f"what scales it ended by {code}"))
        return await asyncio.to_thread(os.pread, taken, BYTES_MAX + 1, 0)


def _memory(stack: contextlib.ExitStack, name: str) -> int:
    """A file without a name on any disk."""
    handle = os.memfd_create(f"carpal-picture-{name}", os.MFD_CLOEXEC)
    stack.callback(os.close, handle)
    return handle


def _write(handle: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(handle, data[written:])
    os.lseek(handle, 0, os.SEEK_SET)
