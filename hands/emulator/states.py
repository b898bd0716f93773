"""A saved state as one piece of bytes that says what it is of, so that it can be told from others.

`carpal game state 1`, a line of JSON (`cartridge` and `content` by their SHA-256, `frame`), and
the emulator's own state, compressed.
"""

import hashlib
import json
import zlib
from dataclasses import dataclass

from hands.api import ToolError

MEDIA_TYPE = "application/vnd.carpal.game-state"
SIZE_MAX = 1024 * 1024
"""Bytes of one; they have some thousand."""
_FIRST = b"carpal game state 1\n"
_CONTENT_MAX = 4 * 1024 * 1024
_HEAD_MAX = 1024


@dataclass(frozen=True, slots=True)
class State:
    """One."""

    cartridge: str
    """SHA-256 of the cartridge it is of, in hex."""
    frame: int
    """When it was saved: frames since the console was switched on."""
    content: bytes
    """The emulator's own."""


def packed(state: State) -> bytes:
    """As bytes."""
    head = {
        "cartridge": state.cartridge,
        "frame": state.frame,
        "content": hashlib.sha256(state.content).hexdigest(),
    }
    return _FIRST + json.dumps(head).encode() + b"\n" + zlib.compress(state.content)


def unpacked(data: bytes) -> State:
    """What `packed` made. Raises ToolError for what it did not make, or was changed since."""
    head, newline, compressed = data.removeprefix(_FIRST).partition(b"\n")
    if not data.startswith(_FIRST) or not newline or len(head) > _HEAD_MAX:
        raise ToolError("it is no state that save_state made")
    try:
        said = json.loads(head)
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(compressed, _CONTENT_MAX)
        right = unpacking.eof and hashlib.sha256(content).hexdigest() == said["content"]
        state = State(str(said["cartridge"]), int(said["frame"]), content)
    except (ValueError, KeyError, TypeError, zlib.error, RecursionError):
        right = False
    if not right:
        raise ToolError("the state is damaged: its content is not what was saved")
    return state
