"""Tokens, certificates and revocations on disk: one-use is a transaction here, not a check.

A token's secret is kept as it is, because an HMAC needs the secret itself;
encryption at rest comes with the seal. It is erased when the token is used,
revoked or found expired, and SQLite overwrites what it frees (in its
write-ahead log at the next checkpoint, by when the secret opens nothing).

Calls are synchronous and must not overlap: the service makes them from one thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path

from carpal.errors import refuse
from carpal.status import Reason
from vault.database import Database

SCHEMA = 2

_TABLES = """
CREATE TABLE tokens (
  token_id       TEXT PRIMARY KEY,
  workspace      TEXT NOT NULL,
  name           TEXT NOT NULL,
  pool           TEXT NOT NULL,
  secret         BLOB,               -- NULL once it can no longer be used
  content_digest BLOB NOT NULL,      -- of what CreateToken sent
  expires        INTEGER NOT NULL,   -- times are Unix seconds
  used           INTEGER,
  revoked        INTEGER
) STRICT;
CREATE TABLE certificates (
  serial         TEXT PRIMARY KEY,
  identity       TEXT NOT NULL,
  workspace      TEXT NOT NULL,
  origin         TEXT NOT NULL,      -- what it was issued for
  request_digest BLOB NOT NULL,
  proof_digest   BLOB NOT NULL,
  fingerprint    BLOB NOT NULL,
  issued         INTEGER NOT NULL,
  expires        INTEGER NOT NULL,
  chain          BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX certificates_request ON certificates (origin, request_digest);
CREATE INDEX certificates_identity ON certificates (identity);
CREATE INDEX tokens_secret ON tokens (expires) WHERE secret IS NOT NULL;
"""
_SINCE_2 = """
ALTER TABLE certificates ADD COLUMN authority TEXT NOT NULL DEFAULT '';
CREATE TABLE revocations (
  identity TEXT PRIMARY KEY,
  before   INTEGER NOT NULL,         -- what was issued in this second or earlier
  reason   TEXT NOT NULL,
  revoker  TEXT NOT NULL,
  version  INTEGER NOT NULL UNIQUE
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token; `secret` is empty once it was erased."""

    token_id: str
    workspace: str
    name: str
    pool: str
    secret: bytes = field(repr=False)
    content_digest: bytes
    expires: int
    used: int | None = None
    revoked: int | None = None


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """A certificate that was issued, and for what."""

    serial: str
    identity: str
    workspace: str
    origin: str
    request_digest: bytes
    proof_digest: bytes
    fingerprint: bytes
    issued: int
    expires: int
    chain: bytes = field(repr=False)
    authority: str = ""
    """Which CA signed it: its `vault.ca.key_id`. Empty if that was not noted yet."""


@dataclass(frozen=True, slots=True)
class RevocationRow:
    """An identity whose certificates, issued at `before` or earlier, are refused."""

    identity: str
    before: int
    reason: str
    revoker: str
    version: int


# Rows are `SELECT *` and whole inserts: the dataclasses have the tables' columns, in order.


class Store:
    """The vault's database."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path)
        self._migrate(path)

    def close(self) -> None:
        """Close the database; the store is of no use afterwards."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and nobody else writes meanwhile."""
        with self._db.transaction():
            yield

    def add_token(self, token: TokenRow) -> None:
        """A new token; its id must not be there yet."""
        self._db.execute("INSERT INTO tokens VALUES (?,?,?,?,?,?,?,?,?)", astuple(token))

    def token(self, token_id: str) -> TokenRow | None:
        """The token, whatever became of it."""
        for row in self._db.execute("SELECT * FROM tokens WHERE token_id = ?", (token_id,)):
            return _token(row)
        return None

    def tokens(self, workspace: str) -> list[TokenRow]:
        """A workspace's tokens, those that end last first."""
        query = "SELECT * FROM tokens WHERE workspace = ? ORDER BY expires DESC, token_id"
        return [_token(row) for row in self._db.execute(query, (workspace,))]

    def spend_token(self, token_id: str, now: int) -> bool:
        """Mark it used and erase its secret; False when it could not be used any more."""
        self._db.execute(
            "UPDATE tokens SET used = ?, secret = NULL WHERE token_id = ? AND used IS NULL "
            "AND revoked IS NULL AND secret IS NOT NULL AND expires > ?",
            (now, token_id, now),
        )
        return self._db.changes() == 1

    def revoke_token(self, token_id: str, workspace: str, now: int) -> None:
        """Make it useless; one that is gone, or another workspace's, stays as it is."""
        self._db.execute(
            "UPDATE tokens SET revoked = ?, secret = NULL "
            "WHERE token_id = ? AND workspace = ? AND revoked IS NULL",
            (now, token_id, workspace),
        )

    def erase_expired_secrets(self, now: int) -> None:
        """Forget what nobody may use again."""
        self._db.execute(
            "UPDATE tokens SET secret = NULL WHERE secret IS NOT NULL AND expires <= ?", (now,)
        )

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
        query = (
            "SELECT 1 FROM tokens WHERE name = ? AND workspace <> ? AND secret IS NOT NULL LIMIT 1"
        )
        return any(True for _ in self._db.execute(query, (name, workspace)))

    def revoke(self, identity: str, now: int, milliseconds: int, reason: str, revoker: str) -> None:
        """Refuse what was issued to an identity up to `now`; the list gets a higher version."""
        self._db.execute(
            "INSERT OR REPLACE INTO revocations SELECT ?, ?, ?, ?, "
            "max(?, coalesce((SELECT max(version) FROM revocations), 0) + 1)",
            (identity, now, reason, revoker, milliseconds),
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
        self._db.execute(
            "UPDATE tokens SET revoked = ?, secret = NULL "
            "WHERE name = ? AND workspace = ? AND secret IS NOT NULL",
            (now, name, workspace),
        )

    def _migrate(self, path: Path) -> None:
        with self.transaction():
            version = int(self._db.pragma("user_version"))
            if version > SCHEMA:
                raise refuse(
                    Reason.CONFIG_INVALID,
                    f"{path} has schema {version}, from a newer vault; this one knows {SCHEMA}",
                    action="run that version",
                )
            if version < 1:
                self._db.execute(_TABLES)
            if version < SCHEMA:
                self._db.execute(_SINCE_2)
                self._db.pragma("user_version", SCHEMA)


def _token(row: tuple[object, ...]) -> TokenRow:
    token_id, workspace, name, pool, secret, *rest = row
    return TokenRow(token_id, workspace, name, pool, secret or b"", *rest)  # type: ignore[arg-type]
