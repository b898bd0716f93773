"""What the SQL needs of a database: the one thing that differs between the stores.

Statements are written once, with `$1, $2, …` for their values. Lists of values are
padded to powers of two, so that few distinct statements are ever prepared.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Row = tuple[Any, ...]

CHUNK = 256
"""Rows or values in one statement, at most: far below either database's parameter limit."""


class Connection(Protocol):
    """One connection to the database, used by one thread at a time.

    Every method raises StoreFull, StoreBroken or StoreUnavailable.
    """

    lock_rows: str
    """What to add to a SELECT whose rows this transaction will change; may be empty."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement; all its rows."""

    def execute_all(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Row]]:
        """Run statements in order, in one round trip where there are any; the rows of each."""

    def stream(
        self, statement: str, values: Sequence[Any] = (), most: int | None = None
    ) -> Generator[Row]:
        """Run one statement and yield rows as they are asked for; close it to stop early.

        `most` is how many rows there may be at most, where that is known.
        """

    def pipelined(self) -> AbstractContextManager[object]:
        """Statements in this block may be sent together; their rows are not looked at."""

    def begin(self) -> None:
        """Start a write transaction."""

    def commit(self) -> None:
        """Make it durable."""

    def rollback(self) -> None:
        """Undo it; without one, nothing happens."""

    def snapshot(self) -> AbstractContextManager[object]:
        """Statements in this block read the same state of the database."""

    def close(self) -> None:
        """Let go."""


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in order, in runs whose lengths are powers of two up to CHUNK."""
    start = 0
    while start < len(items):
        length = min(CHUNK, 1 << ((len(items) - start).bit_length() - 1))
        yield items[start : start + length]
        start += length


def padded(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in runs up to CHUNK, each padded with its last item to a power of two."""
    for start in range(0, len(items), CHUNK):
        run = items[start : start + CHUNK]
        length = 1 << (len(run) - 1).bit_length()
        yield [*run, *[run[-1]] * (length - len(run))]


def marks(count: int, first: int = 1) -> str:
    """`$1, $2, …`: a place for each of `count` values."""
    return ", ".join([f"${n}" for n in range(first, first + count)])


def row_marks(rows: int, columns: int, casts: Sequence[str] = ()) -> str:
    """`($1, $2), ($3, $4), …` for VALUES; `casts` are types for the first row, "" for none.

    A database that types its parameters learns from the first row what a column holds
    when all the values in it are NULL.
    """
    first = ", ".join(
        [
            f"CAST(${n + 1} AS {casts[n]})" if casts and casts[n] else f"${n + 1}"
            for n in range(columns)
        ]
    )
    rest = [f"({marks(columns, row * columns + 1)})" for row in range(1, rows)]
    return ", ".join([f"({first})", *rest])


def flat(rows: Sequence[Row]) -> list[Any]:
    """The values of all rows, one after the other."""
    return [value for row in rows for value in row]
