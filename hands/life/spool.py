"""What is kept of a call's output: the first 64 KiB in memory, some MiB beyond on disk.

So a small call costs no file, a flood costs little of either, and a reader
that comes late, or again, finds what it missed. What had no room is counted.
"""

import time
from pathlib import Path

from hands.contract import Output
from hands.inside import spool
from hands.inside.output import KEEP

_SWEEP_LIMIT = 1.0
"""Seconds for the spools of a hand: its commands may have made any number."""


class Spool:
    """One call's output, by offset."""

    def __init__(self, hand_folder: Path, call_id: str, head: bytes = b"", total: int = 0) -> None:
        """The call's folder is made when it is needed; `head` and `total` are from before."""
        self.head = bytearray(head)
        self.total = total
        """Bytes of output, kept or not."""
        self._hand_folder = hand_folder
        self._call_id = call_id
        self._writer: spool.Writer | None = None

    @property
    def _folder(self) -> Path:
        return folder_of(self._hand_folder, self._call_id)

    def take(self, output: Output) -> None:
        """More output came."""
        offset, data = output.offset, output.data
        if offset == len(self.head) < KEEP:
            first = data[: KEEP - offset]
            self.head += first
            offset, data = offset + len(first), data[len(first) :]
        if data and offset >= len(self.head):
            if self._writer is None:
                self._writer = spool.Writer(self._folder)
            self._writer.write(offset, data)
        self.told(offset + len(data))

    def told(self, end: int) -> None:
        """There is output up to `end`; what is beyond the head is in the folder, or left out."""
        self.total = max(self.total, end)

    def close(self) -> None:
        """No more will come."""
        if self._writer is not None:
            self._writer.close()

    def read(self, offset: int, most: int) -> tuple[int, bytes]:
        """The first bytes kept at or after `offset`, up to `most`: where they begin, and they.

        No bytes when none are kept from there on; then it is `total` where they would begin.
        """
        if offset < len(self.head):
            return offset, bytes(self.head[offset : offset + most])
        begin, data = spool.read(self._folder, offset, most)
        return (begin, data) if data else (max(offset, self.total), b"")

    def free(self, offset: int) -> None:
        """Output below `offset` was read."""
        if offset > len(self.head):
            spool.free(self._folder, offset)

    def remove(self) -> None:
        """Nobody will read it any more. It waits for the disk."""
        spool.remove(self._folder)


def folder_of(hand_folder: Path, call_id: str) -> Path:
    """Where a call's spool is, in its hand's folder."""
    return hand_folder / "spool" / call_id


def sweep(hand_folder: Path, wanted: frozenset[str]) -> None:
    """Remove the spools of all calls but those; what resists, or takes long, goes with the hand."""
    ends = time.monotonic() + _SWEEP_LIMIT
    for name in spool.names(hand_folder / "spool"):
        if time.monotonic() > ends:
            return
        if name not in wanted:
            spool.remove(folder_of(hand_folder, name))
