"""What must hold between the tables, looked at before a store is served."""

from sessiond.sql.connection import Connection

# A seek or two a session. A tombstone's events may be gone.
_HEADS = """
SELECT session_id FROM sessions s
WHERE deleted IS NULL AND (
  head <> coalesce((SELECT max(position) FROM events
                    WHERE chunk = s.chunk AND session = s.number),
                   (SELECT max(upto) FROM lineage WHERE fork = s.number), 0)
  OR hash <> (SELECT hash FROM events
             WHERE chunk = s.chunk AND session = s.number AND position = s.head))
ORDER BY number LIMIT 1
"""

# A seek or two a span: they begin where the lineage ends, each holds all up to the next one,
# and the last up to the head.
_SPANS = """
SELECT session_id FROM sessions s
WHERE deleted IS NULL AND coalesce((SELECT min(first) FROM spans WHERE session = s.number),
                                   head + 1)
  <> 1 + coalesce((SELECT max(upto) FROM lineage WHERE fork = s.number), 0)
UNION ALL
SELECT session_id FROM (
  SELECT session, first, chunk, lead(first) OVER (PARTITION BY session ORDER BY first) AS next
  FROM spans) p
JOIN sessions s ON s.number = p.session
WHERE (SELECT min(position) FROM events WHERE chunk = p.chunk AND session = p.session)
    IS DISTINCT FROM first
  OR (SELECT max(position) FROM events WHERE chunk = p.chunk AND session = p.session)
    <> coalesce(next - 1, CASE WHEN deleted IS NULL THEN head END)
LIMIT 1
"""


def check_logs(connection: Connection) -> str:
    """What is wrong with the first session whose log is not found whole; else empty."""
    if found := connection.execute(_HEADS):
        return f"the head of session {found[0][0]} is not the end of its log"
    if found := connection.execute(_SPANS):
        return f"the log of session {found[0][0]} is not where it is said to be"
    return ""
