"""What became of refreshing each OAuth credential, among all others: shown, and doubted. No loop.

Calls are those of the store: one thread, no overlap.
"""

from vault.credentials.rows import Row
from vault.credentials.rows import Rows as Credentials
from vault.oauth.ports import Key
from vault.oauth.rows import Rows, State


class States:
    """Of one vault process."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._refreshes = Rows(credentials.safe, self._generation)

    def shown(self, row: Row) -> str:
        """Its state, as an operator is to see it: one that a person must act on says so."""
        if row.kind != "mcp_oauth" or row.archived is not None or row.policy["refresh"] is None:
            return row.state
        state = self._refreshes.state(Key(*row.key))
        return row.state if state in (State.FRESH, State.REFRESHING) else str(state)

    def doubt(self) -> int:
        """Refresh tokens of a database that was put back may be spent; how many those are.

        The next refresh of each is the one retry, as after a crash.
        """
        with self._credentials.safe.whole():
            doubted = [
                row
                for row in self._credentials.everywhere()
                if row.kind == "mcp_oauth" and row.policy["refresh"] is not None
            ]
            for row in doubted:
                self._refreshes.doubt(Key(*row.key))
        return len(doubted)

    def _generation(self, key: Key) -> int:
        return self._credentials.get(key.workspace, key.id).generation
