"""Where the audit is kept: the file that is written, older ones beside it, and a note of the head.

`audit.log` is written; once it is large it becomes `audit-NUMBER.log`, by the number of its first
line, and the next one begins with a line that has the hash before it. `audit.head` says which
line is the last: what is cut off the end shows against it.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from carpal.audit_chain import GENESIS, Check, Head, Problem, Verifier, head_of

_LAST = 64 * 1024
"""Bytes that hold the last line, whatever it is; behind it a power cut may leave any number."""
_HEAD_SIZE = 160
"""Bytes of the note: as many each time, so that a full disk has room for the next."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The note of the head."""

    head: Head = GENESIS
    first: int = 1
    """Number of the oldest line that is kept."""

    def encoded(self) -> bytes:
        """As the file has it."""
        said = {"n": self.head.number, "hash": self.head.hash, "first": self.first}
        return json.dumps(said).encode().ljust(_HEAD_SIZE - 1) + b"\n"


@dataclass(frozen=True, slots=True)
class Tail:
    """How a file ends."""

    head: Head | None
    """Its last whole line; None when that is no line of an audit, or there is none."""
    whole: int
    """Bytes up to the end of that line."""
    torn: bytes
    """What is behind it: a line that was not written whole."""


class AuditFiles:
    """Those of one daemon, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "audit.log"
        self.head = folder / "audit.head"

    def older(self) -> list[Path]:
        """Files that are full, the oldest first."""
        return sorted(each for each in self.folder.glob("audit-*.log") if each.is_file())

    def older_name(self, first: int) -> Path:
        """Of a file whose first line has that number."""
        return self.folder / f"audit-{first:012}.log"

    def noted(self) -> Noted:
        """The note; of none, or one that was damaged, that nothing was written."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            # What is there may be a pipe by now, which must not be waited for.
            with open_regular(self.head) as file:
                said = json.loads(file.read(_HEAD_SIZE))
            return Noted(Head(int(said["n"]), str(said["hash"])), int(said["first"]))
        return Noted()

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """All whole lines, the oldest first, and where each is."""
        for path in (*self.older(), self.log):
            with suppress(FileNotFoundError), open_regular(path) as file:
                for number, text in enumerate(file, 1):
                    if text.endswith(b"\n"):
                        yield f"{path.name}, line {number}", text[:-1]

    def verify(
        self, noted: Head | None = None, check: Check | None = None
    ) -> tuple[Verifier, list[Problem]]:
        """What is wrong, held against the note of the head, and against one noted elsewhere."""
        note = self.noted()
        verifier = Verifier(note.first, check)
        seen: dict[int, str] = {}
        wanted = {each.number for each in (note.head, noted) if each}
        problems: list[Problem] = []

        def lines() -> Iterator[tuple[str, bytes]]:
            for where, text in self.lines():
                yield where, text
                if verifier.head.number in wanted:
                    seen[verifier.head.number] = verifier.head.hash

        problems += verifier.walk(lines())
        # The last line is taken after it was given.
        seen.setdefault(verifier.head.number, verifier.head.hash)
        for name, head in (("audit.head", note.head), ("the head that was given", noted)):
            if head is None or head.number == 0:
                continue
            if head.number > verifier.head.number:
                last = f"line {verifier.head.number}" if verifier.lines else "nothing"
                cut = f"names line {head.number}, and the end of the audit is {last}: it was cut"
                problems.append(Problem(name, cut, verifier.head.number + 1))
            elif seen.get(head.number) not in (None, head.hash):
                another = f"has another hash for line {head.number}"
                problems.append(Problem(name, another, head.number))
        return verifier, problems


def open_regular(path: Path) -> BinaryIO:
    """A file, to be read. Raises OSError, also for what is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "is no file", str(path))
    return os.fdopen(handle, "rb")


def tail_of(handle: int) -> Tail:
    """How an open file ends. Raises OSError."""
    size, kept = os.fstat(handle).st_size, _LAST
    while True:
        begin = max(0, size - kept)
        data = os.pread(handle, size - begin, begin)
        end = data.rfind(b"\n") + 1
        if begin == 0 or b"\n" in data[: max(end - 1, 0)]:
            break
        kept *= 2
    text = data[data.rfind(b"\n", 0, max(end - 1, 0)) + 1 : max(end - 1, 0)]
    return Tail(head_of(text) if end else None, begin + end, data[end:])
