"""The audit as a table, beside its file: to be read by number, and a second witness of each line.

The file is what counts: a line is durable there first. The table has all lines that ever were in
it; what is written again under a number that it has already stands beside the first.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vault.database import Database

TABLE = """
CREATE TABLE IF NOT EXISTS audit (
  number INTEGER NOT NULL,
  hash   TEXT NOT NULL,
  line   TEXT NOT NULL,
  PRIMARY KEY (number, hash)
) STRICT
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A line, without its end."""

    number: int
    hash: str
    line: str


class AuditTable:
    """All lines."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.execute(TABLE)

    def add(self, rows: Iterable[Row]) -> None:
        """Lines that are durable in the file."""
        with self._database.transaction():
            for row in rows:
                self._database.execute(
                    "INSERT OR IGNORE INTO audit VALUES (?, ?, ?)", (row.number, row.hash, row.line)
                )

    def last(self) -> int:
        """The highest number; 0 without any."""
        row = self._database.one("SELECT max(number) FROM audit")
        return int(row[0] or 0) if row else 0

    def after(self, number: int, limit: int) -> list[Row]:
        """The lines after that one, in order."""
        query = "SELECT * FROM audit WHERE number > ? ORDER BY number, rowid LIMIT ?"
        return [Row(*row) for row in self._database.execute(query, (number, limit))]

    def hashes(self, number: int, limit: int) -> list[tuple[int, str]]:
        """Number and hash of the lines after that one."""
        query = "SELECT number, hash FROM audit WHERE number > ? ORDER BY number, rowid LIMIT ?"
        return [(int(n), str(h)) for n, h in self._database.execute(query, (number, limit))]

    def last_with(self, fact: str) -> str | None:
        """The last line that has a fact of that name."""
        query = "SELECT line FROM audit WHERE line LIKE ? ORDER BY number DESC LIMIT 1"
        row = self._database.one(query, (f'%,"{fact}":%',))
        return str(row[0]) if row else None

    def says_cut(self, through: int) -> bool:
        """Whether a line says already that those up to that number were cut away."""
        told = f'%"what":"cut","through":{through},%'
        return self._database.one("SELECT 1 FROM audit WHERE line LIKE ?", (told,)) is not None
