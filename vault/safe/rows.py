"""Rows of the safe as they lie in the database: read, written, and signed as a whole.

What changes any does so in a transaction, which signs the sum of all marks before it is committed
and notes it in the anchor after. Nothing is cached but the keys. Calls must not overlap.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from carpal.errors import refuse
from carpal.fault_points import point
from carpal.status import Reason
from vault.database import RESTORE, Database
from vault.safe.anchor import Anchor, Mark
from vault.safe.marks import MODULUS, manifest_of, mark_key, mark_of
from vault.seal.envelope import Place
from vault.seal.keyring import Keyring, open_term

AT_PLACE = "kind = ? AND workspace = ? AND vault_id = ? AND id = ? AND field = ?"


class SealedRows:
    """Of one vault, while it is open."""

    def __init__(self, database: Database, kek: bytes, anchor: Anchor) -> None:
        """`kek` is the seal's key, checked by its canary. Raises VAULT_CORRUPT."""
        self.database = database
        self.anchor = anchor
        self.changed: Callable[[Mark], None] = lambda _: None
        """Told of each state after it was committed and anchored."""
        self._kek = kek
        self._touched = False
        self._delta = self._rows = 0
        """What the transaction changed: whether anything, the sum of marks, how many rows."""
        self._ring, self._mark_key = self._load()

    @property
    def mark(self) -> Mark:
        """The state it is in."""
        epoch, _, _, manifest = self._epoch()
        return Mark(epoch, manifest)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; what was changed in it is signed in it, and anchored after it."""
        with self.database.transaction():
            self._fresh()
            self._delta = self._rows = 0
            self._touched = False
            yield
            mark = self._signed()
            point("vault.safe.before_committed")
        point("vault.safe.committed")
        if mark is not None:
            self.anchor.raise_to(mark)
            point("vault.safe.anchored")
            self.changed(mark)

    def whole(self) -> AbstractContextManager[None]:
        """A transaction, or the one there is."""
        return nullcontext() if self.database.in_transaction else self.transaction()

    def _load(self) -> tuple[Keyring, bytes]:
        rows = self.database.execute("SELECT term, wrapped FROM keyring ORDER BY term")
        if not rows:
            raise refuse(
                Reason.VAULT_CORRUPT, f"{self.database.path} lost its keyring", action=RESTORE
            )
        terms = {int(term): open_term(self._kek, term, wrapped) for term, wrapped in rows}
        return Keyring(terms, max(terms)), mark_key(terms[max(terms)])

    def _fresh(self) -> None:
        """A command may have rotated the terms meanwhile."""
        row = self.database.one("SELECT max(term) FROM keyring")
        if row is None or row[0] != self._ring.current:
            self._ring, self._mark_key = self._load()

    def _row(self, place: Place) -> tuple[Any, ...] | None:
        query = f"SELECT generation, policy, wrapped, blob, mark FROM sealed WHERE {AT_PLACE}"  # noqa: S608
        return self.database.one(query, key_of(place))

    def _write(
        self,
        place: Place,
        generation: int,
        policy: bytes,
        wrapped: bytes | None,
        blob: bytes | None,
    ) -> None:
        before = self._row(place)
        mark = self._mark(place, generation, policy, blob)
        self.database.execute(
            "INSERT OR REPLACE INTO sealed VALUES (?,?,?,?,?,?,?,?,?,?)",
            (*key_of(place), generation, policy, wrapped, blob, mark),
        )
        gone = int.from_bytes(before[4]) if before else 0
        self._moved(int.from_bytes(mark) - gone, 0 if before else 1)

    def _moved(self, delta: int, rows: int) -> None:
        if not self.database.in_transaction:
            raise RuntimeError("the safe is changed in a transaction of its own")
        self._touched = True
        self._delta += delta
        self._rows += rows

    def _signed(self) -> Mark | None:
        return self._sign(0) if self._touched else None

    def _sign(self, above: int) -> Mark:
        epoch, total, rows, _ = self._epoch()
        epoch = max(epoch, above) + 1
        total = (total + self._delta) % MODULUS
        rows += self._rows
        manifest = manifest_of(self._mark_key, epoch, total, rows)
        self.database.execute(
            "UPDATE epoch SET epoch = ?, total = ?, rows = ?, manifest = ?",
            (epoch, total.to_bytes(32), rows, manifest),
        )
        return Mark(epoch, manifest)

    def _epoch(self) -> tuple[int, int, int, str]:
        row = self.database.one("SELECT epoch, total, rows, manifest FROM epoch")
        if row is None:
            raise refuse(
                Reason.VAULT_CORRUPT, f"{self.database.path} lost its manifest", action=RESTORE
            )
        return row[0], int.from_bytes(row[1]), row[2], row[3]

    def _mark(self, place: Place, generation: int, policy: bytes, blob: bytes | None) -> bytes:
        return mark_of(self._mark_key, place, generation, policy, blob)


def key_of(place: Place) -> tuple[str, ...]:
    """A place, as the database has it."""
    return (place.kind, place.workspace, place.vault_id, place.id, place.field)
