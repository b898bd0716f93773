"""One HTTP/1.1 request at a time, framed in one way only. Pure.

Two readers that disagree on where a request ends can be made to see two requests where there is
one. So every byte is read here before any parser gets it, and what could be read in two ways is
refused: a line that ends in a bare LF, a folded header, two lengths, a length beside a coding, a
coding other than `chunked`, extensions and trailers of chunks, a second request before the first
has its answer. What passes is handed on as it came.
"""

import re
from enum import Enum, auto

HEAD_MAX = 32 * 1024
"""Bytes of a request's line and headers."""
HEADERS_MAX = 64
_REQUEST = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*) HTTP/1\.1")
_HEADER = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e\x80-\xff]?[\t\x20-\x7e\x80-\xff]*)"
)
_LENGTH = re.compile(rb"[0-9]{1,12}")
_CHUNK = re.compile(rb"[0-9a-fA-F]{1,8}")
_CHUNK_LINE_MAX = 10
_ONCE = (b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type")
"""Headers of which a second one is refused: who reads the first and who the last would disagree."""
_NEVER = (b"upgrade", b"trailer", b"te", b"proxy-connection", b"http2-settings")
"""Headers that ask for another way to go on than the one there is."""


class Refused(Exception):
    """What came is no request that is taken; `str` says why, for our own log."""


class _At(Enum):
    HEAD = auto()
    LENGTH = auto()
    CHUNK_LINE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    LAST = auto()
    DONE = auto()


class Gate:
    """The way into one connection."""

    def __init__(self) -> None:
        self._at = _At.HEAD
        self._held = b""
        self._left = 0
        self.pipelined = False
        """Bytes came after a request's end, and before its answer's: they are gone."""

    @property
    def begun(self) -> bool:
        """Whether a head has begun that is not whole yet."""
        return self._at is _At.HEAD and bool(self._held)

    @property
    def in_body(self) -> bool:
        """Whether the head is whole and the body is not."""
        return self._at not in (_At.HEAD, _At.DONE)

    @property
    def done(self) -> bool:
        """Whether the request is whole."""
        return self._at is _At.DONE

    def answered(self) -> None:
        """The answer is out: the next request may come."""
        self._at = _At.HEAD

    def take(self, data: bytes) -> bytes:
        """What of this may be read on; raises Refused."""
        passed: list[bytes] = []
        data, self._held = self._held + data, b""
        while data:
            if self._at is _At.DONE:
                self.pipelined = True
                break
            step = self._step(data)
            if step == 0:
                self._held = data
                break
            passed.append(data[:step])
            data = data[step:]
        return b"".join(passed)

    def _step(self, data: bytes) -> int:
        """How many bytes belong to what comes now; 0 when it is not whole."""
        match self._at:
            case _At.HEAD:
                return self._head(data)
            case _At.LENGTH:
                return self._count(data, _At.DONE)
            case _At.CHUNK:
                return self._count(data, _At.CHUNK_END)
            case _At.CHUNK_LINE:
                return self._chunk_line(data)
            case _At.CHUNK_END:
                return self._crlf(data, _At.CHUNK_LINE)
            case _:
                return self._crlf(data, _At.DONE)

    def _count(self, data: bytes, then: _At) -> int:
        step = min(self._left, len(data))
        self._left -= step
        if self._left == 0:
            self._at = then
        return step

    def _crlf(self, data: bytes, then: _At) -> int:
        if not b"\r\n".startswith(data[:2]):
            raise Refused("a chunk does not end where it says, or has trailers")
        if len(data) < 2:
            return 0
        self._at = then
        return 2

    def _chunk_line(self, data: bytes) -> int:
        end = data.find(b"\r\n", 0, _CHUNK_LINE_MAX)
        size = data[: end if end >= 0 else _CHUNK_LINE_MAX].removesuffix(b"\r")
        if (size and not _CHUNK.fullmatch(size)) or end == 0:
            raise Refused("a chunk's line is more than its size")
        if end < 0:
            if len(data) >= _CHUNK_LINE_MAX:
                raise Refused("a chunk's line is too long")
            return 0
        self._left = int(size, 16)
        self._at = _At.CHUNK if self._left else _At.LAST
        return end + 2

    def _head(self, data: bytes) -> int:
        end = data.find(b"\r\n\r\n")
        head = data[: end if end >= 0 else HEAD_MAX]
        if len(head) >= HEAD_MAX:
            raise Refused("the head is too large")
        if end < 0:
            if re.search(rb"(?<!\r)\n|\r(?!\n|\Z)|\x00", head):  # no need to wait for the rest
                raise Refused("a line of the head does not end in CR LF")
            return 0
        self._at, self._left = _framing(head)
        return end + 4


def _framing(head: bytes) -> tuple[_At, int]:
    line, *lines = head.split(b"\r\n")
    if not _REQUEST.fullmatch(line):
        raise Refused("its first line is not that of a request to this server")
    if len(lines) > HEADERS_MAX:
        raise Refused("it has too many headers")
    found: dict[bytes, bytes] = {}
    for each in lines:
        match = _HEADER.fullmatch(each)
        if match is None:
            raise Refused("a header is malformed, or folded")
        name = match[1].lower()
        if name in _NEVER or (name in found and name in _ONCE):
            raise Refused("it has a header that it may not have, or one of them twice")
        found[name] = match[2].strip(b" \t")
    if b"host" not in found:
        raise Refused("it names no host")
    length, coding = found.get(b"content-length"), found.get(b"transfer-encoding")
    if coding is not None:
        if length is not None or coding.lower() != b"chunked":
            raise Refused("its body's length is said in more than one way")
        return _At.CHUNK_LINE, 0
    if length is not None:
        if not _LENGTH.fullmatch(length):
            raise Refused("its length is no number")
        if size := int(length):
            return _At.LENGTH, size
    return _At.DONE, 0
