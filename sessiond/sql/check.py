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


def check_heads(connection: Connection) -> str:
    """What is wrong with the first session whose head is not the end of its log; else empty."""
    found = connection.execute(_HEADS)
    return f"the head of session {found[0][0]} is not the end of its log" if found else ""
