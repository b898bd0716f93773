"""Tokens, certificates and revocations on disk: one-use is a transaction here, not a check.

A token's secret is in the safe, since an HMAC needs the secret itself, and is destroyed when the
token is used, revoked or found expired. A revocation has a witness there, so that none is lost or
changed unseen.

Calls are synchronous and must not overlap: the service makes them from one thread.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.safe.safe import Safe
from vault.seal.envelope import Place, policy_hash
from vault.store.rows import CertificateRow, RevocationRow, TokenRow

_log = logging.getLogger(__name__)

_COLUMNS = "token_id, workspace, name, pool, content_digest, expires, used, revoked"


# Certificates and revocations are `SELECT *` and whole inserts: the dataclasses have the tables'
# columns, in order.


class Store:
    """The vault's database, beside its safe."""

    def __init__(self, safe: Safe) -> None:
        self._safe = safe
        self._db = safe.database

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and nobody else writes meanwhile."""
        with self._safe.transaction():
            yield

    def add_token(self, token: TokenRow) -> None:
        """A new token; its id must not be there yet."""
        with self._safe.whole():
            values = (token.token_id, token.workspace, token.name, token.pool)
            more = (token.content_digest, token.expires, token.used, token.revoked)
            self._db.execute(
                f"INSERT INTO tokens ({_COLUMNS}, held) VALUES (?,?,?,?,?,?,?,?,0)",  # noqa: S608
                (*values, *more),
            )
            self.hold_secret(token)

    def hold_secret(self, token: TokenRow) -> None:
        """Put a token's secret into the safe."""
        if token.secret:
            self._safe.put(_place(token), _use(token), token.secret)
            self._db.execute("UPDATE tokens SET held = 1 WHERE token_id = ?", (token.token_id,))

    def token(self, token_id: str) -> TokenRow | None:
        """The token, whatever became of it. One whose secret does not open has none."""
        query = f"SELECT {_COLUMNS} FROM tokens WHERE token_id = ?"  # noqa: S608
        row = self._db.one(query, (token_id,))
        if row is None:
            return None
        token = _token(row)
        try:
            secret = self._safe.get(_place(token), _use(token))
        except CarpalError as error:
            _log.error("a token is damaged", extra={"token_id": token_id, "why": str(error)})
            return token
        return replace(token, secret=secret or b"")

    def tokens(self, workspace: str) -> list[TokenRow]:
        """A workspace's tokens, those that end last first, without their secrets."""
        query = (
            f"SELECT {_COLUMNS} FROM tokens "  # noqa: S608
            "WHERE workspace = ? ORDER BY expires DESC, token_id"
        )
        return [_token(row) for row in self._db.execute(query, (workspace,))]

    def spend_token(self, token_id: str, now: int) -> bool:
        """Mark it used and erase its secret; False when it could not be used any more."""
        where = "token_id = ? AND used IS NULL AND revoked IS NULL AND held = 1 AND expires > ?"
        return self._let_go("used", now, where, (token_id, now)) == 1

    def revoke_token(self, token_id: str, workspace: str, now: int) -> None:
        """Make it useless; one that is gone, or another workspace's, stays as it is."""
        where = "token_id = ? AND workspace = ? AND revoked IS NULL"
        self._let_go("revoked", now, where, (token_id, workspace))

    def erase_expired_secrets(self, now: int) -> None:
        """Forget what nobody may use again."""
        self._let_go("held", 0, "held = 1 AND expires <= ?", (now,))

    def erase_secrets(self) -> int:
        """Make all unused tokens useless; how many those were."""
        return self._let_go("held", 0, "held = 1", ())

    def _let_go(self, column: str, value: int, where: str, bindings: tuple[object, ...]) -> int:
        """Note in a column of tokens what became of them, and destroy their secrets."""
        query = f"SELECT {_COLUMNS} FROM tokens WHERE {where}"  # noqa: S608
        found = [_token(row) for row in self._db.execute(query, bindings)]
        if not found:
            return 0
        with self._safe.whole():
            found = [_token(row) for row in self._db.execute(query, bindings)]
            for token in found:
                self._safe.remove(_place(token))
                self._db.execute("UPDATE tokens SET held = 0 WHERE token_id = ?", (token.token_id,))
                self._db.execute(
                    f"UPDATE tokens SET {column} = ? WHERE token_id = ?",  # noqa: S608
                    (value, token.token_id),
                )
        return len(found)

    def add_certificate(self, certificate: CertificateRow) -> None:
        """Remember what was issued."""
        self._db.execute(
            "INSERT INTO certificates VALUES (?,?,?,?,?,?,?,?,?,?,?)", astuple(certificate)
        )

    def certificate_for(self, origin: str, request_digest: bytes) -> CertificateRow | None:
        """What was answered to this very request before."""
        query = "SELECT * FROM certificates WHERE origin = ? AND request_digest = ?"
        for row in self._db.execute(query, (origin, request_digest)):
            return CertificateRow(*row)
        return None

    def workspace_of(self, identity: str) -> str | None:
        """The workspace an identity was first issued in; None when it never was."""
        query = "SELECT workspace FROM certificates WHERE identity = ? ORDER BY rowid LIMIT 1"
        for (workspace,) in self._db.execute(query, (identity,)):
            return str(workspace)
        return None

    def holders_of_others(self, authority: str, since: int) -> list[tuple[str, int]]:
        """Identities whose newest certificate is of another CA, and when it expires, by name.

        Without those that expired before `since`, and those that were revoked after it was issued.
        """
        query = (
            "SELECT identity, expires FROM certificates AS c WHERE authority <> ? AND expires > ? "
            "AND NOT EXISTS (SELECT 1 FROM certificates AS n WHERE n.identity = c.identity "
            "AND n.rowid > c.rowid) "
            "AND NOT EXISTS (SELECT 1 FROM revocations AS r WHERE r.identity = c.identity "
            "AND r.before >= c.issued) ORDER BY identity"
        )
        return [
            (str(identity), int(expires))
            for identity, expires in self._db.execute(query, (authority, since))
        ]

    def name_promised_elsewhere(self, name: str, workspace: str) -> bool:
        """Whether another workspace has a live token for a daemon of this name."""
        query = "SELECT 1 FROM tokens WHERE name = ? AND workspace <> ? AND held = 1 LIMIT 1"
        return any(True for _ in self._db.execute(query, (name, workspace)))

    def revoke(self, identity: str, now: int, milliseconds: int, reason: str, revoker: str) -> None:
        """Refuse what was issued to an identity up to `now`; the list gets a higher version."""
        with self._safe.whole():
            self._db.execute(
                "INSERT OR REPLACE INTO revocations SELECT ?, ?, ?, ?, "
                "max(?, coalesce((SELECT max(version) FROM revocations), 0) + 1)",
                (identity, now, reason, revoker, milliseconds),
            )
            self.bear_witness(identity)

    def bear_witness(self, identity: str) -> None:
        """Note what is revoked of an identity where nobody changes it unseen."""
        row = self.revocation(identity)
        if row is not None:
            self._safe.witness(_revocation_place(identity), _said(row))

    def restate_witnesses(self) -> None:
        """Take the revocations as they are: of a database that was put back."""
        with self._safe.whole():
            for place, _, _ in self._safe.places("revocation"):
                self._safe.remove(place)
            for row in self.revocations_since(-1):
                self.bear_witness(row.identity)

    def check_witnesses(self) -> None:
        """VAULT_ROLLED_BACK when a revocation was changed, added or lost."""
        with self._db.at_one_time():
            told = {place.id: policy for place, policy, _ in self._safe.places("revocation")}
            there = {row.identity: _said(row) for row in self.revocations_since(-1)}
        if told != there:
            raise refuse(
                Reason.VAULT_ROLLED_BACK, "revocations were changed or removed by other hands"
            )

    def revocation(self, identity: str) -> RevocationRow | None:
        """What is revoked of an identity."""
        for row in self._db.execute("SELECT * FROM revocations WHERE identity = ?", (identity,)):
            return RevocationRow(*row)
        return None

    def revocations_since(self, since: int) -> list[RevocationRow]:
        """Those that refuse what was issued after `since`, by name."""
        query = "SELECT * FROM revocations WHERE before > ? ORDER BY identity"
        return [RevocationRow(*row) for row in self._db.execute(query, (since,))]

    def revocations_version(self) -> int:
        """The version of the list; 0 while nothing was ever revoked."""
        for (version,) in self._db.execute("SELECT max(version) FROM revocations"):
            return int(version or 0)
        return 0

    def revoke_tokens_for(self, name: str, workspace: str, now: int) -> None:
        """Make the unused tokens for a daemon of this name useless."""
        where = "name = ? AND workspace = ? AND held = 1"
        self._let_go("revoked", now, where, (name, workspace))


def _token(row: tuple[Any, ...]) -> TokenRow:
    token_id, workspace, name, pool, *rest = row
    return TokenRow(token_id, workspace, name, pool, b"", *rest)


def _place(token: TokenRow) -> Place:
    return Place("token", token.workspace, "", token.token_id, "secret")


def _use(token: TokenRow) -> bytes:
    """What a token is good for: a row that was changed opens no secret."""
    parts = (token.name, token.pool, str(token.expires))
    return policy_hash(*(part.encode() for part in parts))


def _revocation_place(identity: str) -> Place:
    return Place("revocation", "", "", identity, "row")


def _said(row: RevocationRow) -> bytes:
    parts = (str(row.before), row.reason, row.revoker, str(row.version))
    return policy_hash(*(part.encode() for part in parts))
