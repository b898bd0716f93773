"""The safe: sealed values in the database, each in its place, and a manifest over all of them.

A value is bound to its place, generation and policy (`vault.seal.envelope`), so that none opens
in another's stead. That does not show an older row, or a row that is missing: for that there are
marks (`vault.safe.marks`). Nothing here is cached but the keys. Calls must not overlap.
"""

import hmac
from collections.abc import Callable

from carpal.errors import CarpalError, refuse
from carpal.fault_points import point
from carpal.status import Reason
from vault.safe.anchor import Mark
from vault.safe.marks import MODULUS, manifest_of
from vault.safe.rows import AT_PLACE, key_of
from vault.safe.terms import Terms
from vault.seal.envelope import NotSealedSo, Place
from vault.seal.keyring import Sealed


class Safe(Terms):
    """The values of one vault, while it is open."""

    # Checks.

    def check(self) -> None:
        """VAULT_ROLLED_BACK when the database is older than it was, or rows of it are."""
        there = self.anchor.read()  # first: the database is never older than what is noted
        with self.database.at_one_time():
            self._fresh()
            epoch, total, rows, manifest = self._epoch()
            marks = self.database.execute("SELECT mark FROM sealed")
        summed = sum(int.from_bytes(mark) for (mark,) in marks) % MODULUS
        signed = manifest_of(self._mark_key, epoch, total, rows)
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

    def sign_first(self) -> Mark:
        """The first state, in the transaction that makes the safe, whose caller anchors it."""
        return self._sign(0)

    def accept(self, above: int, also: Callable[[], object] = lambda: None) -> Mark:
        """Take the database as it is, as newer than any state there was: a declared restore.

        What `also` changes is changed with it, or nothing is.
        """
        with self.database.transaction():
            marks = self.database.execute("SELECT mark FROM sealed")
            total = sum(int.from_bytes(mark) for (mark,) in marks) % MODULUS
            self.database.execute(
                "UPDATE epoch SET total = ?, rows = ?", (total.to_bytes(32), len(marks))
            )
            self._delta = self._rows = 0
            also()
            mark = self._sign(above)
        point("vault.safe.accepted")
        self.anchor.raise_to(mark, anyway=True)
        self.changed(mark)
        return mark

    # Changes.

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
            self.database.execute(f"DELETE FROM sealed WHERE {AT_PLACE}", key_of(place))  # noqa: S608

    # Reads.

    def get(self, place: Place, policy: bytes) -> bytes | None:
        """A value; None when there is none, or it was shredded. CREDENTIAL_CORRUPT.

        `policy` is what the caller read of what it may be used for: another one opens nothing.
        """
        with self.database.at_one_time():
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


def _rolled_back(why: str) -> CarpalError:
    return refuse(Reason.VAULT_ROLLED_BACK, f"the vault's database is not what it was last: {why}")
