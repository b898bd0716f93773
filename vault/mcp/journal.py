"""Which calls were sent: written down before they are, so that none is sent twice.

A call whose row has no outcome may have been sent, and may have had its effect. Nobody can know:
so whoever asks for it again, after whatever crash, is told just that.
"""

import asyncio
import secrets
import time

from vault.database import Database
from vault.mcp.ledger import Ledger
from vault.mcp.refusals import Refusal, Why

UNKNOWN = "unknown"


class Sending:
    """One call that goes out, or did."""

    def __init__(self, ledger: Ledger, mark: str) -> None:
        self._ledger = ledger
        self._mark = mark

    def settled(self, outcome: str) -> None:
        """It went so. Not waited for: without it, the outcome is unknown."""

        def change(database: Database) -> None:
            query = "UPDATE mcp_calls SET outcome = ? WHERE mark = ?"
            database.execute(query, (outcome, self._mark))

        self._ledger.later(change)

    def unsent(self) -> None:
        """Nothing of it left the vault: it may be sent again."""

        def change(database: Database) -> None:
            query = "DELETE FROM mcp_calls WHERE mark = ? AND outcome IS NULL"
            database.execute(query, (self._mark,))

        self._ledger.later(change)


class Journal:
    """Of all sessions."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def unsent(self, session: str, call: str) -> None:
        """Raises CALL_SENT, with what is known of it, of a call that was sent in any turn."""

        def look(database: Database) -> list[tuple[str | None]]:
            query = "SELECT outcome FROM mcp_calls WHERE session=? AND call=? ORDER BY round DESC"
            return list(database.execute(query, (session, call)))

        if found := await self._ledger.write(session, look):
            raise Refusal(Why.CALL_SENT, outcome=str(found[0][0] or UNKNOWN))

    async def sending(self, session: str, call: str, server: str, turn: int = 0) -> Sending:
        """It is sent after this. Raises CALL_SENT, with the outcome that is known of it."""
        mark = secrets.token_hex(8)

        def change(database: Database) -> str | None:
            row = (session, call, turn, server, int(time.time()), mark)
            database.execute("INSERT OR IGNORE INTO mcp_calls VALUES (?,?,?,?,?,NULL,?)", row)
            query = "SELECT outcome, mark FROM mcp_calls WHERE session=? AND call=? AND round=?"
            ((outcome, sender),) = database.execute(query, (session, call, turn))
            return None if sender == mark else str(outcome or UNKNOWN)

        sending = Sending(self._ledger, mark)
        try:
            before = await self._ledger.write(session, change)
        except asyncio.CancelledError:
            sending.unsent()  # it is written all the same, and would stand for nothing
            raise
        if before is not None:
            raise Refusal(Why.CALL_SENT, outcome=before)
        return sending
