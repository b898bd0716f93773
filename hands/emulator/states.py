"""A saved state as one piece of bytes that says what it is of, so that it can be told from others.

`carpal game state 1`, a line of JSON (`cartridge` and `content` by their SHA-256, `frame`), and
the emulator's own state, compressed.
"""

import hashlib
import re
import zlib
from dataclasses import dataclass

from hands.api import ToolError

MEDIA_TYPE = "application/vnd.carpal.game-state"
SIZE_MAX = 1024 * 1024
"""Bytes of one; they have some thousand."""
_FIRST = b"carpal game state 1\n"
_CONTENT_MAX = 4 * 1024 * 1024
_DIGEST, _COUNT = rb"([0-9a-f]{64})", rb"(0|[1-9][0-9]{0,15})"
_HEAD = re.compile(
    rb'\{"cartridge": "%s", "frame": %s, "content": "%s"\}' % (_DIGEST, _COUNT, _DIGEST)
)
"""As it is written, and no other JSON: a number is one, and there are no two of a name."""


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
    digest = hashlib.sha256(state.content).hexdigest()
    head = f'{{"cartridge": "{state.cartridge}", "frame": {state.frame}, "content": "{digest}"}}\n'
    return _FIRST + head.encode() + zlib.compress(state.content)


def unpacked(data: bytes) -> State:
    """What `packed` made. Raises ToolError for what it did not make, or was changed since."""
    if len(data) > SIZE_MAX or not data.startswith(_FIRST):
        raise ToolError("it is no state that save_state made")
    head, _, compressed = data.removeprefix(_FIRST).partition(b"\n")
    said = _HEAD.fullmatch(head)
    content = None if said is None else _content(compressed)
    if said is None or content is None or hashlib.sha256(content).hexdigest() != said[3].decode():
        raise ToolError("the state is damaged: its content is not what was saved")
    return State(said[1].decode(), int(said[2]), content)


def _content(compressed: bytes) -> bytes | None:
    """None when that is not whole, or more than it."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(compressed, _CONTENT_MAX)
    except zlib.error:
        return None
    return content if unpacking.eof and not unpacking.unused_data else None
