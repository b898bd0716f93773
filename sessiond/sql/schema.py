"""The tables, once for both databases; each store adds the guards that its database knows.

{number}: a primary key the database counts up. {int}: 64 bits. {blob}: bytes.
{keyed}: what ends a table whose rows are kept in the order of their key. Truth is 0 or 1;
times are nanoseconds.
"""

VERSION = 3
"""Of the schema; a store of a newer one is not opened."""

# Types and sources repeat, so an event holds their numbers. A commit writes every page it
# touched, so what counts is how many leaves the events of many sessions fall on: those of the
# newest chunk in events_by_position (see sql.spans), and one in all in events_by_id, since ids
# sort by time.
TABLES = """
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value {int} NOT NULL
){strict};
INSERT INTO meta VALUES ('version', {version}), ('generation', 0);

CREATE TABLE names (
  number {number},
  text TEXT NOT NULL UNIQUE
){strict};

CREATE TABLE sessions (
  number {number},
  session_id TEXT NOT NULL UNIQUE,
  workspace TEXT NOT NULL,
  title TEXT NOT NULL,
  metadata {blob} NOT NULL,
  labels {blob} NOT NULL,
  request {blob} NOT NULL,
  created {int} NOT NULL,
  chain_id TEXT NOT NULL,
  forked_from TEXT NOT NULL,
  lineage {blob} NOT NULL,
  imported_to {int} NOT NULL,
  importing {int} NOT NULL,
  archived {int},
  deleted {int},
  head {int} NOT NULL,
  hash {blob} NOT NULL,
  changed {int} NOT NULL,
  wake {int} NOT NULL,
  progressed {int} NOT NULL,
  chunk {int} NOT NULL,
  processed {int} NOT NULL,
  wake_at {int},
  driven {int} NOT NULL,
  attempts {int} NOT NULL,
  failures {int} NOT NULL,
  not_before {int},
  parked TEXT NOT NULL
){strict};
CREATE INDEX sessions_by_workspace ON sessions (workspace, number);
CREATE INDEX sessions_with_work ON sessions (number)
  WHERE archived IS NULL AND deleted IS NULL AND parked = ''
    AND (wake > processed OR wake_at IS NOT NULL);
CREATE INDEX sessions_importing ON sessions (changed) WHERE importing = 1;
-- Tombstones with events that are to go.
CREATE TABLE purges (
  session {int} PRIMARY KEY
){strict};

CREATE TABLE lineage (
  fork {int} NOT NULL,
  source {int} NOT NULL,
  upto {int} NOT NULL,
  PRIMARY KEY (fork, source)
){strict};
CREATE INDEX lineage_by_source ON lineage (source, upto);

CREATE TABLE labels (
  workspace TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  session {int} NOT NULL,
  PRIMARY KEY (workspace, key, value, session)
){strict};
CREATE INDEX labels_by_session ON labels (session);

-- A session's positions from `first` to before its next span are in one chunk of the index.
CREATE TABLE spans (
  session {int} NOT NULL,
  first {int} NOT NULL,
  chunk {int} NOT NULL,
  PRIMARY KEY (session, first)
){keyed};

CREATE TABLE events (
  number {number},
  chunk {int} NOT NULL,
  session {int} NOT NULL,
  position {int} NOT NULL,
  id TEXT NOT NULL,
  time {int} NOT NULL,
  type {int} NOT NULL,
  source {int} NOT NULL,
  must_understand {int} NOT NULL,
  data {blob},
  digest {blob} NOT NULL,
  hash {blob} NOT NULL,
  checksum {int} NOT NULL
){strict};
CREATE UNIQUE INDEX events_by_position ON events (chunk, session, position, type);
CREATE UNIQUE INDEX events_by_id ON events (id, session);

-- Its data is NULL, and this says who made it so.
CREATE TABLE redactions (
  session {int} NOT NULL,
  position {int} NOT NULL,
  redacted_by TEXT NOT NULL,
  time {int} NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (session, position)
){strict};

CREATE TABLE updates (
  session {int} NOT NULL,
  event_id TEXT NOT NULL,
  request {blob} NOT NULL,
  PRIMARY KEY (session, event_id)
){strict};

CREATE TABLE leases (
  resource TEXT PRIMARY KEY,
  epoch {int} NOT NULL,
  holder TEXT NOT NULL,
  address TEXT NOT NULL,
  workspace TEXT NOT NULL,
  attributes {blob} NOT NULL,
  term {int} NOT NULL,
  expires {int} NOT NULL,
  state {int} NOT NULL
){strict};
CREATE INDEX leases_that_live ON leases (expires) WHERE state = 0;

-- What a transaction locks to change its blobs or documents; declared bytes of its blobs.
CREATE TABLE workspaces (
  name TEXT PRIMARY KEY,
  blob_bytes {int} NOT NULL DEFAULT 0
){strict};

-- State: 0 unfinished, 1 complete, 2 dropped, whose chunks are to go.
CREATE TABLE blobs (
  number {number},
  workspace TEXT NOT NULL,
  digest {blob} NOT NULL,
  size {int} NOT NULL,
  media_type TEXT NOT NULL,
  held {int} NOT NULL,
  state {int} NOT NULL,
  time {int} NOT NULL
){strict};
CREATE UNIQUE INDEX blobs_by_digest ON blobs (workspace, digest) WHERE state < 2;
CREATE INDEX blobs_unfinished ON blobs (time) WHERE state = 0;
CREATE INDEX blobs_dropped ON blobs (number) WHERE state = 2;
CREATE TABLE blob_chunks (
  blob {int} NOT NULL,
  start {int} NOT NULL,
  data {blob} NOT NULL,
  checksum {int} NOT NULL,
  PRIMARY KEY (blob, start)
){strict};

CREATE TABLE documents (
  workspace TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  version {int} NOT NULL,
  time {int} NOT NULL,
  data {blob} NOT NULL,
  checksum {int} NOT NULL,
  PRIMARY KEY (workspace, kind, name, version)
){strict};
"""


def tables(*, number: str, int: str, blob: str, strict: str = "", keyed: str = "") -> str:
    """The statements that make the tables, in a database's own types."""
    return TABLES.format(
        version=VERSION, number=number, int=int, blob=blob, strict=strict, keyed=keyed
    )
