"""Secrets struck out of bytes as they pass, however they are cut. Pure.

Each byte goes on at once, except the end of what came where that could be the beginning of a
secret: it waits for what follows. Where the cuts are changes nothing about what goes out.

How it is fast: every few bytes of the data, four are looked up among those that the first bytes
of each spelling have at each place; as a spelling is longer than the step, none is passed over,
and only what was found is compared. That takes the same time for one secret as for fifty. Regular
expressions would be simpler, but Python keeps compiled ones, and so would keep the secrets.
"""

from collections.abc import Iterable, Iterator, Sequence

from vault.redact.patterns import SHORTEST, spellings
from vault.secret import Secret

MARK = b"[REDACTED]"
_GRAM = 4
"""Bytes that are looked up together."""
_STEP = SHORTEST - _GRAM + 1
"""Bytes from one look to the next: any run of SHORTEST bytes has a whole gram at some look."""

Gram = tuple[int, int, int, int]
Span = tuple[int, int]


class Patterns:
    """What to look for, made once and used for every part of a reply."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self.all = spellings(secrets)
        self.longest = max(map(len, self.all), default=0)
        self._at: dict[Gram, list[tuple[bytes, int]]] = {}
        self._begins: dict[bytes, list[bytes]] = {}
        self._starts: set[bytes] = set()
        for each in self.all:
            self._starts.update((each[:1], each[:2], each[:3]))
            self._begins.setdefault(each[:_GRAM], []).append(each)
            for offset in range(_STEP):
                self._at.setdefault(_gram(each, offset), []).append((each, offset))
        self._first_grams = {_gram(each, 0) for each in self._begins}

    def __bool__(self) -> bool:
        return bool(self.all)

    def __repr__(self) -> str:
        return f"Patterns({len(self.all)})"

    def spans(self, data: bytes) -> list[Span]:
        """Where secrets are, in order; those that share a byte are one."""
        if self._at.keys().isdisjoint(_looks(data)):
            return []
        found: list[Span] = []
        for look, gram in enumerate(_looks(data)):
            for pattern, offset in self._at.get(gram, ()):
                begin = look * _STEP - offset
                if begin >= 0 and data.startswith(pattern, begin):
                    found.append((begin, begin + len(pattern)))
        return _merged(found)

    def open_from(self, data: bytes) -> int:
        """Where the first beginning of a secret is that ends with `data`; its end for none."""
        size = len(data)
        at = max(0, size - self.longest + 1)
        tail = data[at:]
        every = zip(tail, tail[1:], tail[2:], tail[3:], strict=False)
        if not self._first_grams.isdisjoint(every):
            for begin in range(at, size - _GRAM + 1):
                for pattern in self._begins.get(data[begin : begin + _GRAM], ()):
                    if len(pattern) > size - begin and pattern.startswith(data[begin:]):
                        return begin
        for begin in range(max(at, size - _GRAM + 1), size):
            if data[begin:] in self._starts:
                return begin
        return size

    def text(self, text: str) -> tuple[str, bool]:
        """A whole text without secrets, and whether there was one."""
        passing = Redactor(self)
        clean = passing.feed(text.encode("utf-8", "replace")) + passing.end()
        return clean.decode("utf-8", "replace"), passing.found


class Redactor:
    """One reply as it passes."""

    def __init__(self, patterns: Patterns) -> None:
        self.found = False
        """Whether a secret was struck out."""
        self._patterns = patterns
        self._held = b""
        self._out = 0
        """How many of the bytes held are out already: as part of a mark."""

    @property
    def held(self) -> bytes:
        """What waits for what follows it."""
        return self._held

    def feed(self, data: bytes) -> bytes:
        """What may go on now."""
        if not self._patterns:
            return data
        whole = self._held + data if self._held else data
        keep = self._patterns.open_from(whole)
        return self._through(whole, self._patterns.spans(whole), keep)

    def end(self) -> bytes:
        """The rest: nothing follows it. Most of a secret, cut off, is struck out like all of it."""
        whole = self._held
        spans = self._patterns.spans(whole)
        if len(whole) - (begun := self._patterns.open_from(whole)) >= SHORTEST:
            spans = _merged([*spans, (begun, len(whole))])
        return self._through(whole, spans, len(whole))

    def _through(self, whole: bytes, spans: Sequence[Span], keep: int) -> bytes:
        """What of `whole` goes out when what is from `keep` on waits, except for whole secrets."""
        parts: list[bytes] = []
        at = self._out
        for begin, end in spans:
            if begin >= keep:
                break  # before it is what waits; it will be found again
            if begin >= at:
                parts += [whole[at:begin], MARK]
            self.found = True
            at = max(at, end)
        if at < keep:
            parts.append(whole[at:keep])
            at = keep
        self._held, self._out = whole[keep:], at - keep
        return b"".join(parts)


def _gram(data: bytes, at: int) -> Gram:
    return data[at], data[at + 1], data[at + 2], data[at + 3]


def _looks(data: bytes) -> Iterator[Gram]:
    """Four bytes at every step."""
    columns = (data[each::_STEP] for each in range(_GRAM))
    return zip(*columns, strict=False)  # the last look may be cut: nothing whole begins there


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
