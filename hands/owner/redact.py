"""Patterns that the machine's owner wants struck out of what leaves. Pure.

Every byte of every match is struck out, also where matches overlap. Whether a byte is depends on
its neighbours alone, so output that is asked for again, from any offset, is the same again.
"""

import re
from collections.abc import Iterator, Sequence

from hands.owner.redact_pattern import Pattern

PATTERNS_MAX = 64
MARK = "[redacted]"
"""Stands in a text for what was struck out."""
_STAR = b"*"
_GAP = re.compile(r"\[[0-9]+ bytes (?:omitted|left out)[^\]\n]*\]")
"""What stands in a result's text for the middle that was left out."""

Span = tuple[int, int]


class Redactor:
    """All patterns of one owner."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self.context = max((each.longest for each in patterns), default=1) - 1
        """Bytes before a place that decide about it; 0 without patterns."""

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def spans(self, data: bytes, *, before: bool = False, after: bool = False) -> list[Span]:
        """What is to be struck out of `data`, in order, none touching another.

        `before`, `after`: bytes are missing there, so what could be part of a match is one.
        """
        found = [span for each in self.patterns for span in _matches(each, data)]
        if before:
            found += [(0, end) for each in self.patterns if (end := _rest(each, data))]
        if after and (begin := self.open_from(data)) < len(data):
            found.append((begin, len(data)))
        merged: list[Span] = []
        for begin, end in sorted(found):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return merged

    def open_from(self, data: bytes) -> int:
        """Where what could become a match with more bytes begins; the end when nothing could."""
        return min((_begun(each, data) for each in self.patterns), default=len(data))

    def masked(self, data: bytes, *, before: bool = False, after: bool = False) -> bytes:
        """As many bytes, with stars for those that are struck out."""
        spans = self.spans(data, before=before, after=after)
        if not spans:
            return data
        masked = bytearray(data)
        for begin, end in spans:
            masked[begin:end] = _STAR * (end - begin)
        return bytes(masked)

    def text(self, text: str) -> str:
        """The text with a mark for each stretch that is struck out.

        Where it says that its middle was left out, what could be half a match is one.
        """
        parts, at, before = [], 0, False
        for gap in _GAP.finditer(text):
            piece = text[at : gap.start()]
            parts += [self._beside(piece, before=before, after=True), gap.group()]
            at, before = gap.end(), True
        return "".join((*parts, self._beside(text[at:], before=before, after=False)))

    def _beside(self, piece: str, *, before: bool, after: bool) -> str:
        """What is between two gaps, whose own lines' ends are no part of it."""
        first = "\n" if before and piece.startswith("\n") else ""
        piece = piece.removeprefix(first)
        last = "\n" if after and piece.endswith("\n") else ""
        return first + self._marked(piece.removesuffix(last), before=before, after=after) + last

    def finds(self, data: bytes) -> bool:
        """Whether there is anything to strike out."""
        return any(each.begins.search(data) for each in self.patterns)

    def _marked(self, text: str, *, before: bool = False, after: bool = False) -> str:
        data = text.encode("utf-8", "replace")
        spans = self.spans(data, before=before, after=after)
        if not spans:
            return text
        parts, at = [], 0
        for begin, end in spans:
            parts += [data[at:begin].decode("utf-8", "replace"), MARK]
            at = end
        return "".join((*parts, data[at:].decode("utf-8", "replace")))


class Stream:
    """Output as it passes, the same number of bytes, masked; of what may become a match it waits.

    For what comes once and in order, as a person's terminal does.
    """

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        """May be another later."""
        self._before = b""
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may go on now."""
        whole = self._before + self._held + data
        at, end = len(self._before), self.redactor.open_from(whole)
        end = max(end, at)
        masked = self.redactor.masked(whole)[at:end]
        self._before = whole[max(0, end - self.redactor.context) : end]
        self._held = whole[end:]
        return masked

    def end(self) -> bytes:
        """The rest: nothing follows it."""
        masked = self.redactor.masked(self._before + self._held)[len(self._before) :]
        self._before = self._held = b""
        return masked


def _matches(pattern: Pattern, data: bytes) -> Iterator[Span]:
    """All of them, or what covers the same bytes, each looked at once however many overlap."""
    if pattern.even:
        yield from (match.span() for match in pattern.even.finditer(data))
        return
    at = run_end = 0
    while match := pattern.begins.search(data, at):
        begin, end = match.span()
        if pattern.more:
            if run_end < end:
                run_end = pattern.run.match(data, end).end()  # type: ignore[union-attr] # it may be empty
            end = min(run_end, end + pattern.more)
        yield begin, end
        at = begin + 1


def _begun(pattern: Pattern, data: bytes) -> int:
    """Where the first beginning of a match is that ends with `data`."""
    required, size = pattern.required, len(data)
    for begin in range(max(0, size - len(required) + 1), size):
        if all(data[at] in required[at - begin] for at in range(begin, size)):
            return begin
    return size


def _rest(pattern: Pattern, data: bytes) -> int:
    """Where the longest ending of a match ends that `data` begins with; 0 for none."""
    required, longest = pattern.required, 0
    for skipped in range(1, len(required)):
        left = required[skipped:]
        if not all(byte in kind for byte, kind in zip(data, left, strict=False)):
            continue
        end = min(len(left), len(data))
        while end < min(len(left) + pattern.more, len(data)) and data[end] in required[-1]:
            end += 1
        longest = max(longest, end)
    return longest
