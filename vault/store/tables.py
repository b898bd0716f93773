"""The store's tables, in each version there was, and making the newest of any."""

from carpal.errors import refuse
from carpal.status import Reason
from vault.database import Database
from vault.store.rows import TokenRow

SCHEMA = 3

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
_SINCE_3 = """
DROP INDEX tokens_secret;
ALTER TABLE tokens ADD COLUMN held INTEGER NOT NULL DEFAULT 0;  -- 1 while its secret is in the safe
ALTER TABLE tokens DROP COLUMN secret;
CREATE INDEX tokens_held ON tokens (expires) WHERE held = 1;
CREATE TABLE credentials (
  workspace      TEXT NOT NULL,
  vault_id       TEXT NOT NULL,
  credential_id  TEXT NOT NULL,
  display_name   TEXT NOT NULL,
  kind           TEXT NOT NULL,
  policy         BLOB NOT NULL,      -- JSON; its secrets open by this alone
  generation     INTEGER NOT NULL,
  state          TEXT NOT NULL,
  content_digest BLOB NOT NULL,
  created        INTEGER NOT NULL,
  archived       INTEGER,
  PRIMARY KEY (workspace, vault_id, credential_id)
) STRICT;
"""


def schema_of(database: Database) -> int:
    """Of a database; CONFIG_INVALID for one of a newer vault."""
    version = int(database.pragma("user_version"))
    if version > SCHEMA:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{database.path} has schema {version}, from a newer vault; this one knows {SCHEMA}",
            action="run that version",
        )
    return version


def make_tables(database: Database) -> list[TokenRow]:
    """The newest tables, in a transaction that also makes the safe; tokens to be put into it."""
    version = schema_of(database)
    if version < 1:
        database.execute(_TABLES)
    if version < 2:
        database.execute(_SINCE_2)
    live: list[TokenRow] = []
    if version < 3:
        query = "SELECT token_id, workspace, name, pool, secret, content_digest, expires "
        rows = database.execute(query + "FROM tokens WHERE secret IS NOT NULL")
        live = [TokenRow(*row) for row in rows]
        database.execute("UPDATE tokens SET secret = NULL")
        database.execute(_SINCE_3)
    database.pragma("user_version", SCHEMA)
    return live
