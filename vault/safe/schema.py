"""The tables of the safe, and of the database before it had one."""

SAFE = """
CREATE TABLE seal (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  kind       TEXT NOT NULL,
  parameters TEXT NOT NULL,          -- JSON; nothing secret
  key_id     TEXT NOT NULL,
  canary     BLOB NOT NULL
) STRICT;
CREATE TABLE keyring (
  term    INTEGER PRIMARY KEY,
  wrapped BLOB NOT NULL,             -- under the seal's key
  created INTEGER NOT NULL,          -- Unix seconds
  wraps   INTEGER NOT NULL           -- keys it wrapped so far
) STRICT;
CREATE TABLE sealed (
  kind       TEXT NOT NULL,
  workspace  TEXT NOT NULL,
  vault_id   TEXT NOT NULL,
  id         TEXT NOT NULL,
  field      TEXT NOT NULL,
  generation INTEGER NOT NULL,
  policy     BLOB NOT NULL,          -- hash of what it may be used for
  wrapped    BLOB,                   -- its own key, under a term's; NULL once destroyed
  blob       BLOB,                   -- the value, under its own key
  mark       BLOB NOT NULL,          -- HMAC over all but `wrapped`
  PRIMARY KEY (kind, workspace, vault_id, id, field)
) STRICT;
CREATE TABLE epoch (
  one      INTEGER PRIMARY KEY CHECK (one = 1),
  epoch    INTEGER NOT NULL,
  total    BLOB NOT NULL,            -- sum of all marks, modulo 2^256
  rows     INTEGER NOT NULL,
  manifest TEXT NOT NULL             -- HMAC over these three
) STRICT;
"""
