"""The audit of one vault, opened: to be written while the vault is open, and to be read."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from carpal.audit_chain import Head
from carpal.audit_files import AuditFiles
from vault.audit.audit import Audit
from vault.audit.chain import Marks
from vault.audit.keys import AuditKeys, Wrap
from vault.audit.log import AuditLog
from vault.audit.table import AuditTable, Row
from vault.audit.verify import Verdict, verify
from vault.audit.writer import AuditWriter
from vault.database import Database

DATABASE = "audit.db"


def day() -> str:
    """Today, in UTC."""
    return f"{datetime.now(UTC):%F}"


@contextmanager
def open_audit(folder: Path, wrap: Wrap, *, first_key: bytes = b"") -> Iterator[Audit]:
    """Write the audit in `folder`; `first_key` is key 0 of one that is being made."""
    with closing(Database(folder / DATABASE, synchronous="NORMAL")) as database:
        keys = AuditKeys(database, wrap, day)
        log = AuditLog(folder, keys, AuditTable(database))
        if first_key:
            log.start(first_key)
        audit = Audit(AuditWriter(log))
        try:
            yield audit
        finally:
            audit.close()


class AuditReader:
    """Reads it, also while it is written. From any thread."""

    def __init__(self, folder: Path) -> None:
        self.files = AuditFiles(folder)
        self._database = Database(folder / DATABASE, synchronous="NORMAL")
        self._table = AuditTable(self._database)
        self._turn = threading.Lock()

    def close(self) -> None:
        """It is of no use afterwards."""
        self._database.close()

    def after(self, number: int, limit: int) -> list[Row]:
        """Lines after that one, in order."""
        with self._turn:
            return self._table.after(number, limit)

    def last(self, limit: int) -> list[Row]:
        """The last lines, in order."""
        with self._turn:
            return self._table.after(max(0, self._table.last() - limit), limit)

    def last_with(self, fact: str) -> str | None:
        """The last line that has a fact of that name."""
        with self._turn:
            return self._table.last_with(fact)

    def head(self) -> Head:
        """The last line, as it was noted."""
        return self.files.noted().head

    def verify(self, marks: Marks | None, heads: tuple[tuple[str, Head], ...] = ()) -> Verdict:
        """Whether all is as it was written."""
        with self._turn:
            return verify(self.files, self._table, marks, heads=heads)
