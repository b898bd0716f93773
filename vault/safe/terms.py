"""The keys between the seal's and the values': replaced by newer ones, or sealed by another."""

import hmac

from vault.safe.marks import MODULUS, mark_key, mark_of
from vault.safe.rows import SealedRows
from vault.safe.seal import place_seal
from vault.seal.envelope import NotSealedSo, Place
from vault.seal.keyring import Keyring, new_term, wrap_term
from vault.seal.seals import SealRow


class Terms(SealedRows):
    """Of one vault, while it is open."""

    @property
    def term(self) -> int:
        """The term that wraps now."""
        return self._ring.current

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
            self._mark_key = mark_key(key)
            query = "SELECT rowid, kind, workspace, vault_id, id, field, * FROM sealed"
            rows = self.database.execute(query)
            needed, total, wraps = {term}, 0, 0
            for row in rows:
                place, (generation, policy, wrapped, blob, mark) = Place(*row[1:6]), row[11:16]
                marked = mark_of(old_mark_key, place, generation, policy, blob)
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
                ((total % MODULUS).to_bytes(32), len(rows)),
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
