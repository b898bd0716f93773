"""The SQLite schema: rows, indexes, and the triggers by which the store itself refuses."""

APPLICATION_ID = 0x43_41_52_50
"""`CARP`: tells our file from any other SQLite file."""
VERSION = 1
"""Of the schema; a file of a newer one is not opened."""

# Rowid tables: WITHOUT ROWID spills 1 KB rows to overflow pages and is three
# times slower. Types and sources repeat, so an event holds their numbers.
SCHEMA = """
CREATE TABLE names (
  number INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE sessions (
  number INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE,
  workspace TEXT NOT NULL,
  title TEXT NOT NULL,
  metadata BLOB NOT NULL,
  labels BLOB NOT NULL,
  request BLOB NOT NULL,
  created INTEGER NOT NULL,
  archived INTEGER,
  head INTEGER NOT NULL,
  hash BLOB NOT NULL,
  wake INTEGER NOT NULL,
  processed INTEGER NOT NULL,
  wake_at INTEGER,
  driven INTEGER NOT NULL,
  progressed INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  not_before INTEGER,
  parked TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_by_workspace ON sessions (workspace, number);
CREATE INDEX sessions_with_work ON sessions (number)
  WHERE archived IS NULL AND parked = '' AND (wake > processed OR wake_at IS NOT NULL);

CREATE TABLE events (
  number INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions,
  position INTEGER NOT NULL,
  id TEXT NOT NULL,
  time INTEGER NOT NULL,
  type INTEGER NOT NULL REFERENCES names,
  source INTEGER NOT NULL REFERENCES names,
  must_understand INTEGER NOT NULL,
  data BLOB NOT NULL,
  digest BLOB NOT NULL,
  hash BLOB NOT NULL
) STRICT;
-- A commit writes every page it touched, so what counts is how many leaves the
-- events of many sessions fall on: one a session here, and one in all below,
-- since ids sort by time. An index by type would double the first.
CREATE UNIQUE INDEX events_by_position ON events (session, position, type);
CREATE UNIQUE INDEX events_by_id ON events (id, session);

CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER events_are_not_removed BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;
-- INSERT OR REPLACE removes rows without the trigger above: hence id and number.
CREATE TRIGGER events_leave_no_gap BEFORE INSERT ON events
WHEN NEW.position IS NOT
    1 + coalesce((SELECT max(position) FROM events WHERE session = NEW.session), 0)
  OR EXISTS (SELECT 1 FROM events WHERE session = NEW.session AND id = NEW.id)
  OR EXISTS (SELECT 1 FROM events WHERE number = NEW.number)
BEGIN SELECT RAISE(ABORT, 'an event takes the next position, under a new id'); END;

CREATE TABLE updates (
  session INTEGER NOT NULL REFERENCES sessions,
  event_id TEXT NOT NULL,
  request BLOB NOT NULL,
  PRIMARY KEY (session, event_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
  resource TEXT PRIMARY KEY,
  epoch INTEGER NOT NULL,
  holder TEXT NOT NULL,
  address TEXT NOT NULL,
  workspace TEXT NOT NULL,
  attributes BLOB NOT NULL,
  term INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  state INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_that_live ON leases (expires) WHERE state = 0;
"""
