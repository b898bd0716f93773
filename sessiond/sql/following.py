"""Reading rows as they are now, for whoever follows what others commit: tombstones too."""

from collections.abc import Collection

from sessiond.rows import LeaseRow, SessionRow
from sessiond.sql.connection import Connection, marks, padded
from sessiond.sql.rows import LEASE_COLUMNS, SESSION_COLUMNS, lease_row, session_row


def sessions_now(connection: Connection, session_ids: Collection[str]) -> list[SessionRow]:
    """The sessions of those that there are."""
    found = connection.execute_all(
        [
            (
                f"SELECT {SESSION_COLUMNS} FROM sessions "  # noqa: S608 - our own names
                f"WHERE session_id IN ({marks(len(run))}) AND importing = 0",
                run,
            )
            for run in padded(sorted(session_ids))
        ]
    )
    return [session_row(values) for rows in found for values in rows]


def leases_now(connection: Connection, resources: Collection[str]) -> list[LeaseRow]:
    """The newest leases of these resources."""
    found = connection.execute_all(
        [
            (
                f"SELECT {LEASE_COLUMNS} FROM leases "  # noqa: S608 - our own names
                f"WHERE resource IN ({marks(len(run))})",
                run,
            )
            for run in padded(sorted(resources))
        ]
    )
    return [lease_row(values) for rows in found for values in rows]
