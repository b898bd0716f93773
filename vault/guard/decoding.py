"""A reply's compression undone, never into more than was asked for. Pure.

Nobody asked for any, so this is for servers that compress all the same. What they name otherwise,
cut short, or fill with little that becomes much is an error.
"""

import zlib
from collections.abc import Iterator

from vault.guard.errors import Malformed, TooLarge
from vault.guard.limits import MIB, Limits

_PIECE = 64 * 1024
"""Bytes that are made at a time, however much they would become."""
_GZIP = {"gzip", "x-gzip"}
KNOWN = {"", "identity", "deflate", *_GZIP}


class Decoder:
    """One reply's body, from the bytes of the wire to those that were meant, both counted."""

    def __init__(self, encoding: str, limits: Limits) -> None:
        if encoding not in KNOWN:
            raise Malformed(part="content-encoding")
        self._gzip = encoding in _GZIP
        self._inner = None if encoding in {"", "identity"} else self._new()
        self._limits = limits
        self._taken = 0
        self.given = 0
        """Bytes that came out until now."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What this part becomes, in pieces. TooLarge or Malformed ends the reply."""
        self._taken += len(data)
        if self._inner is None:
            self._count(data)
            yield data
            return
        while data:
            if self._inner.eof:  # another one may follow it in a file of several
                if not self._gzip:
                    raise Malformed(part="compression")
                self._inner = self._new()
            try:
                piece = self._inner.decompress(data, _PIECE)
            except zlib.error:
                raise Malformed(part="compression") from None
            data = self._inner.unconsumed_tail or self._inner.unused_data
            self._count(piece)
            if piece:
                yield piece

    def end(self) -> None:
        """Nothing follows: what was compressed must be whole."""
        if self._inner is not None and self._taken and not self._inner.eof:
            raise Malformed(part="compression")

    def _count(self, piece: bytes) -> None:
        self.given += len(piece)
        if self.given > self._limits.reply_bytes:
            raise TooLarge(limit="reply_bytes", allowed=self._limits.reply_bytes)
        if self.given > MIB and self.given > self._taken * self._limits.ratio:
            raise TooLarge(limit="ratio", allowed=self._limits.ratio)

    def _new(self) -> "zlib._Decompress":
        return zlib.decompressobj(zlib.MAX_WBITS | 16 if self._gzip else zlib.MAX_WBITS)
