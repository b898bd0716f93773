"""The vault's SQLite files: opened in one way, and what SQLite says is said in our words.

The one door to apsw. Calls of one `Database` must not overlap.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.tls import private_folder

_BUSY_MS = 5_000
"""`carpal vault issue` may write for a few milliseconds while the service runs."""
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.SQLError)
"""The last is of a statement that does not fit the tables: both are ours."""
_NO_ROOM = (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError)
RESTORE = "restore a backup: docs/how-to/back-up-the-vault.md"


class Database:
    """One file. Raises VAULT_CORRUPT when it is damaged, STORE_FULL when it cannot be written."""

    def __init__(self, path: Path, *, synchronous: str = "FULL") -> None:
        """Made, for its owner alone, when it is not there."""
        self.path = path
        private_folder(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with self._said():
            self._db = apsw.Connection(str(path))
            try:
                self._db.set_busy_timeout(_BUSY_MS)
                self._db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
                for pragma in (
                    "journal_mode = WAL",
                    f"synchronous = {synchronous}",
                    "secure_delete = ON",
                    "trusted_schema = OFF",
                    "foreign_keys = ON",
                ):
                    self._db.execute(f"PRAGMA {pragma}")
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """It is of no use afterwards."""
        self._db.close()

    def execute(self, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows it gives."""
        with self._said():
            return list(self._db.execute(statement, bindings))

    def one(self, statement: str, bindings: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Its first row; None when it gives none."""
        rows = self.execute(statement, bindings)
        return rows[0] if rows else None

    def changes(self) -> int:
        """Rows that the last statement changed."""
        return self._db.changes()

    def pragma(self, name: str, value: Any = None) -> Any:
        """Read one, or set it."""
        with self._said():
            return self._db.pragma(name) if value is None else self._db.pragma(name, value)

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""
        return self._db.in_transaction

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and nobody else writes meanwhile."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have undone it already
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def at_one_time(self) -> Iterator[None]:
        """Whatever is read in it is of one state, while a command, or the service, writes."""
        if self.in_transaction:
            yield
            return
        self.execute("BEGIN")
        try:
            yield
        finally:
            if self._db.in_transaction:
                self.execute("ROLLBACK")

    def forget(self) -> None:
        """Have what was erased overwritten on disk too, as far as nobody reads it now."""
        with self._said():
            self._db.pragma("wal_checkpoint(TRUNCATE)")

    def check(self) -> None:
        """VAULT_CORRUPT when SQLite finds anything wrong with the file."""
        found = self.execute("PRAGMA quick_check(1)")
        if found != [("ok",)]:
            raise corrupt(self.path, str(found[0][0]) if found else "unreadable")

    def copy_to(self, path: Path) -> None:
        """A whole copy of it as of now, by SQLite's own backup; into a file that is not there."""
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with self._said(), closing(apsw.Connection(str(path))) as copy:
            with copy.backup("main", self._db, "main") as backup:
                while not backup.done:
                    backup.step(1_000)
            copy.pragma("journal_mode", "delete")  # one file, whole
        with path.open("rb") as file:
            os.fsync(file.fileno())

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGED as error:
            raise corrupt(self.path, str(error)) from None
        except _NO_ROOM as error:
            raise refuse(
                Reason.STORE_FULL,
                f"{self.path} cannot be written ({error}); nothing changed",
                action="give its disk room, and its file and folder to the vault's user",
            ) from None
        except apsw.BusyError:
            raise refuse(Reason.UNAVAILABLE, f"{self.path} is busy") from None


def corrupt(path: Path, why: str) -> CarpalError:
    """A file that SQLite, or we, cannot make sense of."""
    return refuse(Reason.VAULT_CORRUPT, f"{path} is damaged ({why})", action=RESTORE)
