"""The audit's file: lines are on the disk when `append` returns, or it raises and none counts.

Commands on the vault's machine write beside the service: whoever appends holds `audit.lock`, and
goes on from what is in the file, not from what it remembers.
"""

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from carpal.audit_chain import GENESIS, Head, record_of
from carpal.audit_files import AuditFiles, Noted, open_regular, tail_of
from carpal.errors import CarpalError
from carpal.fault_points import point
from carpal.tls import private_folder
from vault.audit.chain import line
from vault.audit.facts import Facts
from vault.audit.keys import AuditKeys
from vault.audit.table import AuditTable, Row

_log = logging.getLogger(__name__)

FILE_SIZE = 64 * 1024 * 1024
"""Bytes after which the next file begins; all are kept."""

Said = tuple[str, Facts]
"""What a line says: its `what`, and its facts."""


class AuditLog:
    """The file, its note of the head, and the table. Calls must not overlap."""

    def __init__(
        self,
        folder: Path,
        keys: AuditKeys,
        table: AuditTable,
        *,
        size: int = FILE_SIZE,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Nothing is opened yet."""
        self.files = AuditFiles(folder)
        self._keys = keys
        self._table = table
        self._size = size
        self._now = now
        self._handle = -1
        self._end = -1
        """The file's size as it was when `head` was its last line."""
        self._key = 0
        """Number of the key that wrote the last line."""
        self._rows: list[Row] = []
        """Lines that are in the file, and not in the table yet."""
        self.head = GENESIS

    @property
    def behind(self) -> int:
        """Lines that the table does not have yet."""
        return len(self._rows)

    def append(self, said: Sequence[Said]) -> list[Head]:
        """The head at each of these lines, which are durable. Raises OSError, CarpalError."""
        with self._alone():
            first = self._ready()
            try:
                return self._write([*first, *said])[len(first) :]
            except BaseException:
                self.let_go()
                raise

    def settle(self) -> None:
        """Fill the table. A crash before it costs nothing: what is missing is put in later."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        try:
            with self._alone():
                if self._table.last() < rows[0].number - 1:
                    self._heal()
                self._table.add(rows)
        except (OSError, CarpalError) as error:
            _log.error("the audit's table is behind its file", extra={"why": str(error)})

    def start(self, first_key: bytes) -> None:
        """Where there is no key: the first one, or one after those that a lost database had."""
        with self._alone():
            self._keys.start(first_key, self._last_key() + 1)

    def let_go(self) -> None:
        """Close the file; the next call opens it."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = self._end = -1

    def _write(self, said: Sequence[Said]) -> list[Head]:
        key = self._keys.current(self._key)
        time = self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head, heads, rows = self.head, [], []
        for what, facts in said:
            text, head = line(head, time, what, facts, key)
            heads.append(head)
            rows.append(Row(head.number, head.hash, text[:-1].decode()))
        data = "".join(f"{row.line}\n" for row in rows).encode()
        before = os.fstat(self._handle).st_size
        try:
            point("vault.audit.before_written")
            if os.write(self._handle, data) != len(data):
                raise OSError(28, "the disk has no room for it")
            os.fsync(self._handle)
            point("vault.audit.written")
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._handle, before)
            raise
        self.head, self._end, self._key = head, before + len(data), key[0]
        self._rows += rows
        self._note()
        return heads

    def _note(self) -> None:
        """Note the head: the lines are durable, whatever becomes of this."""
        try:
            handle = os.open(self.files.head, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(handle, Noted(self.head).encoded(), 0)
            finally:
                os.close(handle)
        except OSError as error:
            _log.error("the audit's head is not noted", extra={"why": str(error)})

    def _heal(self) -> None:
        """Put into the table what is in the file and not in it."""
        last, rows = self._table.last(), []
        for _, text in self.files.lines():
            record = record_of(text)
            if record is not None and record["n"] > last:
                rows.append(Row(record["n"], str(record.get("hash")), text.decode()))
        self._table.add(rows)

    def _ready(self) -> list[Said]:
        """The file is open, has room, and we know its end; what is to be said before all else."""
        known = self._handle >= 0 and _same(self._handle, self.files.log)
        if known and os.fstat(self._handle).st_size == self._end < self._size:
            return []
        self.let_go()
        said = self._open()
        if self._end >= self._size and not said:
            first = self.head.number + 1
            with open_regular(self.files.log) as file:
                record = record_of(file.readline(64 * 1024).rstrip(b"\n"))
            self.files.log.rename(self.files.older_name(record["n"] if record else first))
            self.let_go()
            said = self._open()
        return said

    def _open(self) -> list[Said]:
        private_folder(self.files.folder)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._handle = os.open(self.files.log, flags, 0o600)
        tail, noted = tail_of(self._handle), self.files.noted().head
        said: list[Said] = []
        if tail.torn:  # a crash cut it short: nobody was told that it is there
            os.ftruncate(self._handle, tail.whole)
            digest = hashlib.sha256(tail.torn).hexdigest()
            said.append(("torn", {"bytes": len(tail.torn), "head": digest}))
        head = tail.head
        if tail.whole == 0 and (older := self.files.older()):
            with open_regular(older[-1]) as file:
                head = tail_of(file.fileno()).head
            said.append(("continued", {"after": head.hash if head else ""}))
        if head is None:
            head = noted if tail.whole else GENESIS
        witness = max(noted.number, self._table.last())
        if head.number < witness and not self._table.says_cut(witness):
            _log.error("lines of the audit were cut away", extra={"after": head.number})
            said.append(("cut", {"through": witness}))
        self.head, self._end = head, tail.whole
        self._key = max(0, self._last_key())
        return said

    def _last_key(self) -> int:
        """Number of the key that wrote the last line; -1 without any."""
        for path in (self.files.log, *reversed(self.files.older())):
            with suppress(FileNotFoundError), open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                data = os.pread(file.fileno(), 64 * 1024, max(0, size - 64 * 1024))
                for text in reversed(data.split(b"\n")):
                    record = record_of(text)
                    if record is not None and type(record.get("key")) is int:
                        return int(record["key"])
        return -1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        private_folder(self.files.folder)
        path = self.files.folder / "audit.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _same(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
