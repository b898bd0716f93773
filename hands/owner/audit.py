"""What happened on this machine, for its owner: one line each, chained, written before it is done.

A call, a hand and a person's entry are written before they begin, and refused when that cannot
be: then the audit says all that happened. What ended is written with the next line, or a moment
later. There are digests in it, and no input and no output. It is not fsynced, as the journal is
not: it survives the process, and what a machine that lost its power had not kept shows as cut.
"""

import asyncio
import hashlib
import logging
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from carpal.audit_chain import GENESIS, Head, line, record_of
from carpal.audit_files import AuditFiles, Noted, open_regular, tail_of
from carpal.errors import CarpalError, refuse
from carpal.status import Reason

log = logging.getLogger(__name__)

FILE_SIZE = 16 * 1024 * 1024
"""Bytes after which the next file begins."""
FILES = 16
"""Older files that are kept."""
_WAITING_MAX = 10_000
"""Lines that wait for a disk; more are counted only."""
_TEXT_MAX = 1024
"""Characters of each text in a line: who is refused could else fill all files with one."""
_SYSLOG = b"<86>carpal-hand: "
"""Facility authpriv, level info."""

Fact = tuple[str, str, dict[str, Any]]


class Audit:
    """One daemon's."""

    def __init__(
        self, folder: Path, *, syslog: str = "", files: int = FILES, size: int = FILE_SIZE
    ) -> None:
        """Nothing is opened yet. `syslog` is a socket that gets a copy, `files` 0 for all."""
        self.files = AuditFiles(folder)
        self.syslog = syslog
        self.keep = files
        self.problem = ""
        """Why it cannot be written; empty while it can."""
        self._size = size
        self._handle = self._note_handle = -1
        self._noted = Noted()
        self._first_here = 1
        """Number of the first line of the file that is written."""
        self._first: list[Fact] = []
        """What a file that was just opened says before all else."""
        self._waiting: list[Fact] = []
        self._left_out = self._refused = 0
        self._since = ""
        self._copies: socket.socket | None = None
        self._flushing = False

    def write(self, what: str, **facts: Any) -> None:
        """Before it is done. Raises AUDIT_NOT_WRITTEN: then it must not be."""
        self._waiting.append((_now(), what, facts))
        if not self.flush():
            self._waiting.pop()
            self._refused += 1
            raise refuse(
                Reason.AUDIT_NOT_WRITTEN,
                f"the audit of this machine cannot be written, so nothing is done: {self.problem}",
            )

    def note(self, what: str, **facts: Any) -> None:
        """It was done, or refused: written in a moment, or once that is possible again."""
        if len(self._waiting) >= _WAITING_MAX:
            self._left_out += 1
            return
        self._waiting.append((_now(), what, facts))
        if self._flushing:
            return
        with suppress(RuntimeError):  # without a loop, with the next line
            asyncio.get_running_loop().call_soon(self._flush_soon)
            self._flushing = True

    def flush(self) -> bool:
        """Write what waits; False when that cannot be, and then it waits on."""
        try:
            self._ready()
            self._append()
        except OSError as error:
            self._broke(error)
            return False
        self.problem = ""
        return True

    def copy_to(self, syslog: str) -> None:
        """From now on lines go to that socket too; to none when it is empty."""
        if syslog == self.syslog:
            return
        self.syslog = syslog
        if self._copies is not None:
            self._copies.close()
            self._copies = None

    def close(self) -> None:
        """The daemon ends."""
        if self._waiting:
            self.flush()
        self._let_go()
        if self._copies is not None:
            self._copies.close()

    def _flush_soon(self) -> None:
        self._flushing = False
        if self._waiting:
            self.flush()

    def _append(self) -> None:
        facts = [*self._first, *self._waiting]
        if self._refused or self._left_out:
            lost = {"refused": self._refused, "left_out": self._left_out, "since": self._since}
            facts.insert(len(self._first), (_now(), "resumed", lost))
        if not facts:
            return
        head, lines = self._noted.head, []
        for time, what, more in facts:
            text, head = line(head, time, what, {name: _shown(each) for name, each in more.items()})
            lines.append(text)
        data = b"".join(lines)
        before = os.fstat(self._handle).st_size
        if os.write(self._handle, data) != len(data):
            os.ftruncate(self._handle, before)
            raise OSError("the disk has no room for it")
        self._first.clear()
        self._waiting.clear()
        self._refused = self._left_out = 0
        self._note(Noted(head, self._noted.first))
        for text in lines if self.syslog else ():
            self._copy(text)

    def _note(self, noted: Noted) -> None:
        self._noted = noted
        try:
            if self._note_handle < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                self._note_handle = os.open(self.files.head, flags, 0o600)
            os.pwrite(self._note_handle, noted.encoded(), 0)
        except OSError as error:  # the lines are there; only a cut of their end would not show
            log.warning("the head of the audit is not noted", extra={"why": error.strerror})

    def _ready(self) -> None:
        """There is a file with room."""
        if self._handle >= 0 and not _same(self._handle, self.files.log):
            self._let_go()  # somebody moved it away
        if self._handle < 0:
            self._open()
        if os.fstat(self._handle).st_size >= self._size:
            self._turn()

    def _open(self) -> None:
        """Go on where the file ends, whatever ended the daemon that wrote it."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self.files.log, flags, 0o600)
        try:
            tail, noted = tail_of(handle), self.files.noted()
            if tail.torn:
                os.ftruncate(handle, tail.whole)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        if tail.torn:  # it is gone from the file now, whatever becomes of this line
            digest = hashlib.sha256(tail.torn).hexdigest()
            self._waiting.insert(0, (_now(), "torn", {"bytes": len(tail.torn), "sha256": digest}))
        self._first = []
        head, last = tail.head, noted.head
        if tail.whole == 0 and (older := self.files.older()):
            head = _end_of(older[-1])  # killed between the two steps of a turn
            self._first = [(_now(), "continued", {"after": head.hash if head else ""})]
        if head is None:
            head = last if tail.whole else GENESIS
        if head.number < last.number or (head.number == last.number and head != last):
            self._first.append((_now(), "cut", {"through": last.number, "head": last.hash}))
        self._noted = Noted(head, noted.first)
        self._first_here = _first_of(self.files.log) or head.number + 1

    def _turn(self) -> None:
        """The file is full: the next one goes on with the chain."""
        self.files.log.rename(self.files.older_name(self._first_here))
        self._let_go()
        older = self.files.older()
        gone = older[: -self.keep] if self.keep else []
        if gone:
            self._note(Noted(self._noted.head, _first_of(older[len(gone)]) or 1))
        for path in gone:
            path.unlink()
        self._open()

    def _broke(self, error: OSError) -> None:
        self._let_go()
        why = error.strerror or str(error)
        if not self.problem:
            self._since = _now()
            about = {"file": str(self.files.log), "why": why}
            log.error("the audit cannot be written: new calls are refused", extra=about)
        self.problem = f"{self.files.log}: {why}"

    def _let_go(self) -> None:
        for handle in (self._handle, self._note_handle):
            if handle >= 0:
                os.close(handle)
        self._handle = self._note_handle = -1

    def _copy(self, text: bytes) -> None:
        """To syslog, which may lose it: the numbers say so."""
        try:
            if self._copies is None:
                self._copies = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._copies.setblocking(False)
                self._copies.connect(self.syslog)
            self._copies.send(_SYSLOG + text.rstrip())
        except OSError as error:
            if self._copies is not None:
                self._copies.close()
                self._copies = None
            about = {"syslog": self.syslog, "why": error.strerror}
            log.warning("a line of the audit did not reach syslog", extra=about)


def _shown(value: Any) -> Any:
    """Of a text that others chose no more than a line holds."""
    return value[:_TEXT_MAX] if isinstance(value, str) else value


def refusal(error: CarpalError) -> dict[str, str]:
    """What the audit says of one: why, and by which rule, and none of its words."""
    facts = {"reason": str(error.reason)}
    return {**facts, **{key: error.fields[key] for key in ("rule",) if key in error.fields}}


def _same(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _end_of(path: Path) -> Head | None:
    with open_regular(path) as file:
        return tail_of(file.fileno()).head


def _first_of(path: Path) -> int:
    """The number of a file's first line; 0 when it has none."""
    with open_regular(path) as file:
        record = record_of(file.readline(64 * 1024).rstrip(b"\n"))
    return int(record["n"]) if record else 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
