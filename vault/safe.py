"""The safe: sealed values in the database, each in its place, and a manifest over all of them.

A value is bound to its place, generation and policy (`vault.seal.envelope`), so that none opens
in another's stead. That does not show an older row, or a row that is missing: for that each has a
mark, and the sum of all marks, with a count of changes, is signed in the transaction that changes
it and noted in the anchor. Nothing here is cached but the keys. Calls must not overlap.
"""

import hmac
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from carpal.errors import CarpalError, refuse
from carpal.fault_points import point
from carpal.status import Reason
from vault.anchor import Anchor, Mark
from vault.database import RESTORE, Database
from vault.safe_schema import SAFE
from vault.seal.envelope import NotSealedSo, Place, bound
from vault.seal.keyring import Keyring, Sealed, new_term, open_term, wrap_term
from vault.seal.seals import SealKind, SealRow

_log = logging.getLogger(__name__)

_MODULUS = 2**256
_PLACE = "kind = ? AND workspace = ? AND vault_id = ? AND id = ? AND field = ?"


def seal_of(database: Database) -> SealRow | None:
    """The seal of a database; None when it has none yet."""
    if database.one("SELECT 1 FROM sqlite_master WHERE name = 'seal'") is None:
        return None
    row = database.one("SELECT kind, parameters, key_id, canary FROM seal")
    if row is None:
        raise refuse(Reason.VAULT_CORRUPT, f"{database.path} lost its seal", action=RESTORE)
    try:
        return SealRow(SealKind(row[0]), json.loads(row[1]), row[2], row[3])
    except ValueError:
        raise refuse(
            Reason.VAULT_CORRUPT, f"{database.path} has a seal that is none", action=RESTORE
        ) from None


def place_seal(database: Database, row: SealRow) -> None:
    """Note a seal, in the transaction that wraps the keyring by it."""
    database.execute(
        "INSERT OR REPLACE INTO seal VALUES (1, ?, ?, ?, ?)",
        (row.kind, json.dumps(dict(row.parameters)), row.key_id, row.canary),
    )


def new_safe(database: Database, row: SealRow, kek: bytes, seconds: int) -> None:
    """The tables of a safe with nothing in it, in the transaction of whoever makes it."""
    database.execute(SAFE)
    place_seal(database, row)
    term = new_term()
    database.execute("INSERT INTO keyring VALUES (1, ?, ?, 0)", (wrap_term(kek, 1, term), seconds))
    manifest = _manifest(_mark_key(term), 0, 0, 0)
    database.execute("INSERT INTO epoch VALUES (1, 0, ?, 0, ?)", (bytes(32), manifest))


class Safe:
    """The values of one vault, while it is open."""

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

    # Checks.

    def check(self) -> None:
        """VAULT_ROLLED_BACK when the database is older than it was, or rows of it are."""
        there = self.anchor.read()  # first: the database is never older than what is noted
        epoch, total, rows, manifest = self._epoch()
        marks = self.database.execute("SELECT mark FROM sealed")
        summed = sum(int.from_bytes(mark) for (mark,) in marks) % _MODULUS
        signed = _manifest(self._mark_key, epoch, total, rows)
        if not hmac.compare_digest(signed, manifest) or (summed, len(marks)) != (total, rows):
            raise _rolled_back("rows of it were removed, put back, or changed by other hands")
        if there is None:
            raise _rolled_back(f"{self.anchor.path} is missing, so nothing says how new it is")
        if there.epoch > epoch:
            raise _rolled_back(f"it is at change {epoch}, and was at {there.epoch}")
        if there.epoch == epoch and not hmac.compare_digest(there.manifest, manifest):
            raise _rolled_back(f"at change {epoch} it was another")
        if there.epoch < epoch:
            self.anchor.raise_to(Mark(epoch, manifest))  # a crash came between the two

    @property
    def mark(self) -> Mark:
        """The state it is in."""
        epoch, _, _, manifest = self._epoch()
        return Mark(epoch, manifest)

    @property
    def term(self) -> int:
        """The term that wraps now."""
        return self._ring.current

    # Changes.

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

    def put(self, place: Place, policy: bytes, plain: bytes) -> int:
        """Seal a value, in the place of the one before; its generation. In a transaction."""
        before = self._row(place)
        generation = before[0] + 1 if before else 1
        sealed = self._ring.put(place, generation, policy, plain)
        self.database.execute(
            "UPDATE keyring SET wraps = wraps + 1 WHERE term = ?", (self._ring.current,)
        )
        self._write(place, generation, policy, sealed.wrapped, sealed.blob)
        return generation

    def witness(self, place: Place, policy: bytes) -> None:
        """Note something that is no secret, so that its loss or change shows. In a transaction."""
        before = self._row(place)
        self._write(place, before[0] + 1 if before else 1, policy, None, None)

    def shred(self, place: Place) -> None:
        """Destroy a value's key, and it; that it was there stays. In a transaction."""
        before = self._row(place)
        if before and before[2] is not None:
            self._write(place, before[0], before[1], None, None)

    def remove(self, place: Place) -> None:
        """As if it had never been. In a transaction."""
        before = self._row(place)
        if before:
            self._moved(-int.from_bytes(before[4]), -1)
            self.database.execute(f"DELETE FROM sealed WHERE {_PLACE}", _key(place))  # noqa: S608

    # Reads.

    def get(self, place: Place, policy: bytes) -> bytes | None:
        """A value; None when there is none, or it was shredded. CREDENTIAL_CORRUPT.

        `policy` is what the caller read of what it may be used for: another one opens nothing.
        """
        self._fresh()
        row = self._row(place)
        if row is None or row[2] is None or row[3] is None:
            return None
        generation, _, wrapped, blob, mark = row
        try:
            if not hmac.compare_digest(self._mark(place, generation, policy, blob), mark):
                raise NotSealedSo("its mark is another's")
            return self._ring.get(place, generation, policy, Sealed(wrapped, blob))
        except NotSealedSo as error:
            raise refuse(
                Reason.CREDENTIAL_CORRUPT,
                f"the {place.kind} {place.id!r} does not open",
                why=str(error),
            ) from None

    def generation(self, place: Place) -> int:
        """Of the value there; 0 when there was none."""
        row = self._row(place)
        return int(row[0]) if row else 0

    def holds(self, place: Place) -> bool:
        """Whether there is a value that was not shredded."""
        row = self._row(place)
        return row is not None and row[2] is not None

    def places(self, kind: str) -> list[tuple[Place, bytes, bool]]:
        """All of a kind: place, hash of its policy, and whether there is a value."""
        query = (
            "SELECT kind, workspace, vault_id, id, field, policy, wrapped IS NOT NULL "
            "FROM sealed WHERE kind = ? ORDER BY workspace, vault_id, id, field"
        )
        return [
            (Place(*row[:5]), row[5], bool(row[6])) for row in self.database.execute(query, (kind,))
        ]

    # Keys.

    def rotate_terms(self, seconds: int) -> int:
        """Wrap all keys by a new term, and destroy those before; how many could not be.

        Those are damaged already; the term they need stays.
        """
        try:
            left = self._rotate(seconds)
        finally:
            self._ring, self._mark_key = self._load()
        self.database.forget()
        return left

    def _rotate(self, seconds: int) -> int:
        left = 0
        with self.transaction():
            term, key = self._ring.current + 1, new_term()
            old, old_mark_key = self._ring, self._mark_key
            self._ring = Keyring({**old.terms, term: key}, term)
            self._mark_key = _mark_key(key)
            query = "SELECT rowid, kind, workspace, vault_id, id, field, * FROM sealed"
            rows = self.database.execute(query)
            needed, total, wraps = {term}, 0, 0
            for row in rows:
                place, (generation, policy, wrapped, blob, mark) = Place(*row[1:6]), row[11:16]
                marked = _mark(old_mark_key, place, generation, policy, blob)
                try:
                    if not hmac.compare_digest(marked, mark):
                        raise NotSealedSo("its mark is another's")
                    if wrapped is not None:
                        wrapped = self._ring.wrap_again(place, generation, policy, wrapped)
                        wraps += 1
                    mark = self._mark(place, generation, policy, blob)
                    self.database.execute(
                        "UPDATE sealed SET wrapped = ?, mark = ? WHERE rowid = ?",
                        (wrapped, mark, row[0]),
                    )
                except NotSealedSo:
                    left += 1
                    needed |= set(old.terms)
                total += int.from_bytes(mark)
            self.database.execute(
                "INSERT INTO keyring VALUES (?, ?, ?, ?)",
                (term, wrap_term(self._kek, term, key), seconds, wraps),
            )
            for each in set(old.terms) - needed:
                self.database.execute("DELETE FROM keyring WHERE term = ?", (each,))
            self.database.execute(
                "UPDATE epoch SET total = ?, rows = ?",
                ((total % _MODULUS).to_bytes(32), len(rows)),
            )
            self._moved(0, 0)
        return left

    def reseal(self, row: SealRow, kek: bytes) -> None:
        """Wrap the terms by another seal's key: nothing else is touched."""
        with self.transaction():
            for term, key in self._ring.terms.items():
                self.database.execute(
                    "UPDATE keyring SET wrapped = ? WHERE term = ?",
                    (wrap_term(kek, term, key), term),
                )
            place_seal(self.database, row)
            self._moved(0, 0)
        self.database.forget()
        self._kek = kek

    def age(self) -> tuple[int, int]:
        """Of the term that wraps now: when it was made, in Unix seconds, and what it wrapped."""
        row = self.database.one(
            "SELECT created, wraps FROM keyring WHERE term = ?", (self._ring.current,)
        )
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def sign_first(self) -> Mark:
        """The first state, in the transaction that makes the safe, whose caller anchors it."""
        return self._sign(0)

    def accept(self, above: int) -> Mark:
        """Take the database as it is, as newer than any state there was: a declared restore."""
        with self.database.transaction():
            marks = self.database.execute("SELECT mark FROM sealed")
            total = sum(int.from_bytes(mark) for (mark,) in marks) % _MODULUS
            self.database.execute(
                "UPDATE epoch SET total = ?, rows = ?", (total.to_bytes(32), len(marks))
            )
            self._delta = self._rows = 0
            mark = self._sign(above)
        self.anchor.raise_to(mark, anyway=True)
        self.changed(mark)
        return mark

    # Inside.

    def _load(self) -> tuple[Keyring, bytes]:
        rows = self.database.execute("SELECT term, wrapped FROM keyring ORDER BY term")
        if not rows:
            raise refuse(
                Reason.VAULT_CORRUPT, f"{self.database.path} lost its keyring", action=RESTORE
            )
        terms = {int(term): open_term(self._kek, term, wrapped) for term, wrapped in rows}
        return Keyring(terms, max(terms)), _mark_key(terms[max(terms)])

    def _fresh(self) -> None:
        """A command may have rotated the terms meanwhile."""
        row = self.database.one("SELECT max(term) FROM keyring")
        if row is None or row[0] != self._ring.current:
            self._ring, self._mark_key = self._load()

    def _row(self, place: Place) -> tuple[Any, ...] | None:
        query = f"SELECT generation, policy, wrapped, blob, mark FROM sealed WHERE {_PLACE}"  # noqa: S608
        return self.database.one(query, _key(place))

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
            (*_key(place), generation, policy, wrapped, blob, mark),
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
        total = (total + self._delta) % _MODULUS
        rows += self._rows
        manifest = _manifest(self._mark_key, epoch, total, rows)
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
        return _mark(self._mark_key, place, generation, policy, blob)


def _key(place: Place) -> tuple[str, ...]:
    return (place.kind, place.workspace, place.vault_id, place.id, place.field)


def _mark_key(term: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=None, info=b"carpal/v1/vault/marks").derive(term)


def _mark(key: bytes, place: Place, generation: int, policy: bytes, blob: bytes | None) -> bytes:
    content = b"" if blob is None else sha256(blob).digest()
    return hmac.new(
        key, bound(place.bound("vault/v1/mark", generation, policy), content), sha256
    ).digest()


def _manifest(key: bytes, epoch: int, total: int, rows: int) -> str:
    fields = (b"vault/v1/manifest", str(epoch).encode(), total.to_bytes(32), str(rows).encode())
    return hmac.new(key, bound(*fields), sha256).hexdigest()


def _rolled_back(why: str) -> CarpalError:
    return refuse(Reason.VAULT_ROLLED_BACK, f"the vault's database is not what it was last: {why}")
