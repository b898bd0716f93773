"""SQLite's own part of the schema: the triggers by which the store itself refuses."""

from sessiond.sql.schema import tables

APPLICATION_ID = 0x43_41_52_50
"""`CARP`: tells our file from any other SQLite file."""

# An event changes in one way, once: its data goes, and a redaction says why. Its rows go
# when its session is a tombstone and no fork shares them any more.
_GUARDS = """
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
WHEN NEW.data IS NOT NULL
  OR NEW.number IS NOT OLD.number OR NEW.chunk IS NOT OLD.chunk
  OR NEW.session IS NOT OLD.session
  OR NEW.position IS NOT OLD.position OR NEW.id IS NOT OLD.id OR NEW.time IS NOT OLD.time
  OR NEW.type IS NOT OLD.type OR NEW.source IS NOT OLD.source
  OR NEW.must_understand IS NOT OLD.must_understand OR NEW.digest IS NOT OLD.digest
  OR NEW.hash IS NOT OLD.hash OR NEW.checksum IS NOT OLD.checksum
  OR NOT EXISTS (SELECT 1 FROM redactions
                 WHERE session = OLD.session AND position = OLD.position)
BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END;
CREATE TRIGGER events_are_not_removed BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM sessions WHERE number = OLD.session AND deleted IS NOT NULL)
  OR EXISTS (SELECT 1 FROM lineage WHERE source = OLD.session AND upto >= OLD.position)
BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END;
CREATE TRIGGER redactions_are_not_changed BEFORE UPDATE ON redactions
BEGIN SELECT RAISE(ABORT, 'a redaction is never changed'); END;
CREATE TRIGGER redactions_are_not_removed BEFORE DELETE ON redactions
WHEN EXISTS (SELECT 1 FROM events WHERE session = OLD.session AND position = OLD.position
             AND chunk = (SELECT chunk FROM spans WHERE session = OLD.session
                          AND first <= OLD.position ORDER BY first DESC LIMIT 1))
BEGIN SELECT RAISE(ABORT, 'a redaction is never removed'); END;
CREATE TRIGGER tombstones_stay BEFORE UPDATE OF deleted, importing ON sessions
WHEN (OLD.deleted IS NOT NULL AND NEW.deleted IS NOT OLD.deleted) OR NEW.importing > OLD.importing
BEGIN SELECT RAISE(ABORT, 'a tombstone is never changed'); END;
CREATE TRIGGER sessions_are_not_removed BEFORE DELETE ON sessions
WHEN OLD.importing = 0 OR EXISTS (SELECT 1 FROM spans WHERE session = OLD.number)
BEGIN SELECT RAISE(ABORT, 'a session is never removed'); END;
-- INSERT OR REPLACE removes rows without the triggers above: hence id and number.
CREATE TRIGGER events_leave_no_gap BEFORE INSERT ON events
WHEN NEW.chunk IS NOT
    (SELECT chunk FROM spans WHERE session = NEW.session ORDER BY first DESC LIMIT 1)
  OR NEW.position IS NOT coalesce(
    (SELECT max(position) FROM events WHERE chunk = NEW.chunk AND session = NEW.session) + 1,
    (SELECT max(first) FROM spans WHERE session = NEW.session))
  OR EXISTS (SELECT 1 FROM events WHERE session = NEW.session AND id = NEW.id)
  OR (NEW.number > 0 AND EXISTS (SELECT 1 FROM events WHERE number = NEW.number))
BEGIN SELECT RAISE(ABORT, 'an event takes the next position, under a new id'); END;
CREATE TRIGGER spans_leave_no_gap BEFORE INSERT ON spans
WHEN NEW.first IS NOT
    1 + coalesce((SELECT max(position) FROM events WHERE session = NEW.session AND chunk =
                    (SELECT chunk FROM spans WHERE session = NEW.session
                     ORDER BY first DESC LIMIT 1)),
                 (SELECT max(upto) FROM lineage WHERE fork = NEW.session), 0)
  OR EXISTS (SELECT 1 FROM spans WHERE session = NEW.session AND first >= NEW.first)
  OR EXISTS (SELECT 1 FROM events WHERE chunk = NEW.chunk AND session = NEW.session)
BEGIN SELECT RAISE(ABORT, 'a span begins after the one before it, in another chunk'); END;
CREATE TRIGGER spans_are_not_changed BEFORE UPDATE ON spans
BEGIN SELECT RAISE(ABORT, 'a span is never changed'); END;
CREATE TRIGGER spans_are_not_removed BEFORE DELETE ON spans
WHEN EXISTS (SELECT 1 FROM events WHERE chunk = OLD.chunk AND session = OLD.session)
BEGIN SELECT RAISE(ABORT, 'a span is never removed'); END;
"""

# Events are in a rowid table: WITHOUT ROWID spills 1 KB rows to overflow pages, three times slower.
SCHEMA = (
    tables(
        number="INTEGER PRIMARY KEY",
        int="INTEGER",
        blob="BLOB",
        strict=" STRICT",
        keyed=" STRICT, WITHOUT ROWID",
    )
    + _GUARDS
)
