"""The lines of the audit, each chained to the one before by its hash. Pure.

A line is one JSON object, whose last member is the SHA-256 over the hash before it and all of
the line that is before that member. So whoever changes, removes or moves a line has to write all
lines after it anew, and shows against a head that was noted elsewhere.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_HASH = re.compile(rb',"hash":"([0-9a-f]{64})"\}$')


@dataclass(frozen=True, slots=True)
class Head:
    """The last line: its number, from 1 on, and its hash in hex."""

    number: int = 0
    hash: str = hashlib.sha256(b"carpal/v1/audit").hexdigest()


GENESIS = Head()
"""Before the first line."""


def line(head: Head, time: str, what: str, facts: Mapping[str, Any]) -> tuple[bytes, Head]:
    """The line after `head`, with its end, and the head then."""
    number = head.number + 1
    record = {"n": number, "time": time, "what": what, **facts}
    body = json.dumps(record, separators=(",", ":"))[:-1].encode()
    digest = _digest(head.hash, body)
    return b'%s,"hash":"%s"}\n' % (body, digest.encode()), Head(number, digest)


def head_of(text: bytes) -> Head | None:
    """What a line, without its end, says it is; None for what is no line of an audit."""
    found = _HASH.search(text)
    record = record_of(text)
    if found is None or record is None:
        return None
    return Head(record["n"], found[1].decode())


def record_of(text: bytes) -> dict[str, Any] | None:
    """What a line says; None for what is no line of an audit."""
    try:
        record = json.loads(text)
    except ValueError:
        return None
    if not isinstance(record, dict) or type(record.get("n")) is not int or record["n"] < 1:
        return None
    return record


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a line."""

    where: str
    """File and line."""
    what: str
    number: int = 0
    """Which line it is, or would be: the first that is changed or missing. 0 for no line."""


Check = Callable[[Head, bytes, Mapping[str, Any]], str]
"""What else is wrong with a line: the head before it, its text without the end, what it says."""


class Verifier:
    """Walks all lines there are, in order."""

    def __init__(self, first: int = 1, check: Check | None = None) -> None:
        """`first` is the number the first line must have; what was before was kept no longer."""
        self.head = GENESIS
        self.lines = 0
        self.noted: list[str] = []
        """What is no fault, and worth saying."""
        self._first = first
        self._check = check

    def walk(self, lines: Iterable[tuple[str, bytes]]) -> Iterator[Problem]:
        """Each problem; `lines` gives where each is, and it, without its end."""
        for where, text in lines:
            self.lines += 1
            expected = self.head.number + 1
            if problem := self._take(where, text):
                yield Problem(where, problem, expected)

    def _take(self, where: str, text: bytes) -> str:
        said, record = head_of(text), record_of(text)
        if said is None or record is None:
            return "is no line of an audit"
        before, self.head = self.head, said
        # A daemon that is killed while it removes files may leave some.
        if self.lines == 1 and 1 < said.number <= self._first:
            self.noted.append(f"begins with line {said.number}: older files were removed")
            before = Head(said.number - 1, str(record.get("after")))
        if said.number != before.number + 1:
            return (
                f"is number {said.number}, after number {before.number}: {_missing(before, said)}"
            )
        if _digest(before.hash, text[: _HASH.search(text).start()]) != said.hash:  # type: ignore[union-attr]
            return "was changed, or the one before it was"
        if record["what"] == "cut":
            return f"says that the lines after {before.number} were cut away before it"
        if record["what"] == "torn":
            self.noted.append(f"{where}: a line was cut short by a crash, and is left out")
        return "" if self._check is None else self._check(before, text, record)


def _missing(before: Head, said: Head) -> str:
    return (
        "lines are missing" if said.number > before.number + 1 else "lines were moved or repeated"
    )


def _digest(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()
