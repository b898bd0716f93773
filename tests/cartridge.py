"""A small game for tests, assembled here from its instructions: move the block onto the goal.

The block stands at the top left, eight pixels wide, and moves one pixel each frame that a
direction is held. The goal is a chequered square. Once the block's corner is in it the game is
won: all colours are inverted for good, so that the block is light in the dark.
"""

import sys
from collections.abc import Mapping

Y, X, PRESSES, WON = 0xC000, 0xC001, 0xC002, 0xC003
"""Addresses: where the block is, in pixels; how often A was pressed; 1 once it is won."""
GOAL = (96, 64)
"""The goal's corner, x and y in pixels."""
_SIZE = 32 * 1024
_HELD = 0xC004
_TITLE = b"CARPAL"

Part = int | str
"""A byte; `name:` is a label, `>name` how far it is, `name` its address."""


def _game() -> list[Part]:
    column, row = GOAL[0] // 8, GOAL[1] // 8
    return [
        *(0xF3, 0x31, 0xFE, 0xFF),  # di; ld sp, FFFE
        *("start:", 0xF0, 0x44, 0xFE, 0x90, 0x20, ">start"),  # until LY is 144
        *(0xAF, 0xE0, 0x40),  # LCD off
        *(0x21, 0x00, 0x80),  # ld hl, 8000
        *("clear:", 0xAF, 0x22, 0x7C, 0xFE, 0xA0, 0x20, ">clear"),  # to 9FFF
        *(0x21, 0x00, 0xFE, 0x06, 0xA0, 0xAF),  # ld hl, FE00; ld b, A0; xor a
        *("sprites:", 0x22, 0x05, 0x20, ">sprites"),
        *(0x21, 0x00, 0xC0, 0x06, 0x08, 0xAF),  # ld hl, C000; ld b, 8; xor a
        *("memory:", 0x22, 0x05, 0x20, ">memory"),
        *(0x21, 0x10, 0x80, 0x06, 0x10, 0x3E, 0xFF),  # tile 1: full
        *("full:", 0x22, 0x05, 0x20, ">full"),
        *(0x06, 0x08, 0x3E, 0xAA),  # tile 2: chequered
        *("chequered:", 0x22, 0x22, 0x2F, 0x05, 0x20, ">chequered"),
        *(0x3E, 0x02, 0xEA, (row * 32 + column) & 0xFF, 0x98 + (row * 32 + column) // 256),
        *(0x3E, 0x01, 0xEA, 0x02, 0xFE),  # the block's sprite is tile 1
        *(0x3E, 0xE4, 0xE0, 0x47, 0xE0, 0x48),  # palettes
        *(0x3E, 0x93, 0xE0, 0x40),  # LCD on, background and sprites
        *("frame:", 0xF0, 0x44, 0xFE, 0x90, 0x20, ">frame"),
        *(0x3E, 0x20, 0xE0, 0x00, 0xF0, 0x00, 0xF0, 0x00, 0x2F, 0x47),  # ld b, directions
        *_move(0x40, X, "right", [0xFE, 152], 0x3C),
        *_move(0x48, X, "left", [0xB7], 0x3D),
        *_move(0x50, Y, "up", [0xB7], 0x3D),
        *_move(0x58, Y, "down", [0xFE, 136], 0x3C),
        *(0x3E, 0x10, 0xE0, 0x00, 0xF0, 0x00, 0xF0, 0x00, 0x2F, 0xE6, 0x01, 0x47),  # ld b, A
        *(0xFA, *_at(_HELD), 0x4F, 0x78, 0xEA, *_at(_HELD)),  # ld c, held before
        *(0x79, 0x2F, 0xA0, 0x28, ">drawn"),  # newly pressed?
        *(0xFA, *_at(PRESSES), 0x3C, 0xEA, *_at(PRESSES)),
        *("drawn:", 0xFA, *_at(Y), 0xC6, 16, 0xEA, 0x00, 0xFE),
        *(0xFA, *_at(X), 0xC6, 8, 0xEA, 0x01, 0xFE),
        *(0xFA, *_at(X), 0xE6, 0xF8, 0xFE, GOAL[0], 0x20, ">wait"),
        *(0xFA, *_at(Y), 0xE6, 0xF8, 0xFE, GOAL[1], 0x20, ">wait"),
        *(0x3E, 0x01, 0xEA, *_at(WON), 0x3E, 0x1B, 0xE0, 0x47, 0xE0, 0x48),  # won: inverted
        *("wait:", 0xF0, 0x44, 0xFE, 0x90, 0x28, ">wait"),
        *(0xC3, "frame"),
    ]


def _move(bit: int, variable: int, name: str, at_edge: list[Part], step: int) -> list[Part]:
    """If the bit of B is set and it is not at the edge, one pixel."""
    return [
        *(0xCB, bit, 0x28, f">{name}"),
        *(0xFA, *_at(variable), *at_edge, 0x28, f">{name}"),
        *(step, 0xEA, *_at(variable), f"{name}:"),
    ]


def _at(address: int) -> tuple[int, int]:
    return address & 0xFF, address >> 8


def _assembled(parts: list[Part], begin: int) -> bytes:
    labels: dict[str, int] = {}
    at = begin
    for part in parts:
        if isinstance(part, str) and part.endswith(":"):
            labels[part[:-1]] = at
        else:
            at += 2 if isinstance(part, str) and not part.startswith(">") else 1
    code = bytearray()
    for part in parts:
        code += _bytes(part, labels, begin + len(code))
    return bytes(code)


def _bytes(part: Part, labels: Mapping[str, int], at: int) -> bytes:
    if isinstance(part, int):
        return bytes((part,))
    if part.endswith(":"):
        return b""
    if part.startswith(">"):
        return (labels[part[1:]] - at - 1).to_bytes(1, signed=True)
    return bytes(_at(labels[part]))


def cartridge(title: bytes = _TITLE) -> bytes:
    """The whole cartridge; one of another title is another one."""
    image = bytearray(_SIZE)
    image[0x100:0x104] = (0x00, 0xC3, 0x50, 0x01)  # nop; jp 0150
    image[0x134 : 0x134 + len(title)] = title
    code = _assembled(_game(), 0x150)
    image[0x150 : 0x150 + len(code)] = code
    image[0x14D] = -(sum(image[0x134:0x14D]) + 25) & 0xFF
    return bytes(image)


if __name__ == "__main__":
    sys.stdout.buffer.write(cartridge())
