"""A call's output as one watcher gets it, the owner's patterns masked: as many bytes, in order.

What may become a match with more bytes is held back until those come, or nothing more does. Beside
bytes that are missing, what could be half a match is masked too.
"""

from collections.abc import Iterator

from carpal.v1 import hand_pb2 as pb
from hands.life.spool import Spool
from hands.owner.redact import Redactor


class Masking:
    """From one offset on."""

    def __init__(self, redactor: Redactor, spool: Spool, offset: int) -> None:
        self.redactor = redactor
        """May be another later."""
        self._before, self._cut = _context(spool, offset, redactor.context)
        self._held = b""
        self._at = offset
        """Where what is held begins."""
        self._dropped = 0

    def take(self, begin: int, data: bytes) -> Iterator[pb.ExecuteResponse]:
        """More output: what may go on now."""
        end = self._at + len(self._held)
        if begin > end:
            yield from self._give(len(self._held), self._held, after=True)
            self._before, self._held, self._cut = b"", b"", True
            self._at, self._dropped = begin, self._dropped + begin - end
        self._held += data
        whole = self._before + self._held
        opened = self.redactor.open_from(whole) - len(self._before)
        yield from self._give(max(0, opened), self._held, after=False)

    def end(self) -> Iterator[pb.ExecuteResponse]:
        """Nothing follows."""
        yield from self._give(len(self._held), self._held, after=False)

    def _give(self, size: int, held: bytes, *, after: bool) -> Iterator[pb.ExecuteResponse]:
        if not size:
            return
        whole, begin = self._before + held, len(self._before)
        masked = self.redactor.masked(whole, before=self._cut, after=after)
        chunk = pb.OutputChunk(
            offset=self._at, data=masked[begin : begin + size], dropped_bytes=self._dropped
        )
        known = whole[: begin + size]
        keep = self.redactor.context
        self._cut = self._cut and len(known) <= keep
        self._before, self._held = known[-keep:] if keep else b"", held[size:]
        self._at, self._dropped = self._at + size, 0
        yield pb.ExecuteResponse(output=chunk)


def _context(spool: Spool, offset: int, size: int) -> tuple[bytes, bool]:
    """What is kept of the `size` bytes before an offset, and whether some are missing."""
    wanted = at = max(0, offset - size)
    known = b""
    while at < offset:
        begin, data = spool.read(at, offset - at)
        if begin > at:  # a gap: only what is behind it is beside the offset
            known, wanted = b"", begin
        if not data or begin >= offset:
            return b"", True
        known += data
        at = begin + len(data)
    return known, wanted > max(0, offset - size)
