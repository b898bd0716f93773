"""What a session's tools were when it first saw them, kept as long as it lives."""

from collections.abc import Mapping

from vault.database import Database
from vault.mcp.ledger import Ledger


class Pins:
    """Of all sessions."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def changed(self, session: str, server: str, digests: Mapping[str, str]) -> set[str]:
        """Names of tools that are not what they were; those that are new are kept as they are."""

        def change(database: Database) -> set[str]:
            query = "SELECT tool, digest FROM mcp_tools WHERE session = ? AND server = ?"
            known = dict(database.execute(query, (session, server)))
            for tool in digests.keys() - known.keys():
                database.execute(
                    "INSERT INTO mcp_tools VALUES (?,?,?,?)", (session, server, tool, digests[tool])
                )
            return {tool for tool, digest in digests.items() if known.get(tool, digest) != digest}

        return await self._ledger.write(session, change)

    async def agreed(self, session: str, server: str, tool: str, digest: str) -> None:
        """A person has agreed to what it is now."""

        def change(database: Database) -> None:
            database.execute(
                "INSERT OR REPLACE INTO mcp_tools VALUES (?,?,?,?)", (session, server, tool, digest)
            )

        await self._ledger.write(session, change)
