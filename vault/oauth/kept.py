"""OAuth credentials as they are kept with all others: what the engine needs of them.

Also what a use of one asks for before it opens it (`vault.credentials.uses.Refresher`).
"""

from dataclasses import replace

from vault.credentials.rows import Row, Rows
from vault.guard.addresses import private_network
from vault.oauth.engine import Engine
from vault.oauth.ports import Authentication, Client, Credential, Key, Tokens
from vault.secret import Secret

_LIFETIMES = """
CREATE TABLE IF NOT EXISTS oauth_lifetimes (
  workspace     TEXT NOT NULL,
  vault_id      TEXT NOT NULL,
  credential_id TEXT NOT NULL,
  seconds       REAL NOT NULL,       -- as the server said last; a hint, and no right
  PRIMARY KEY (workspace, vault_id, credential_id)
) STRICT
"""
_WHERE = "workspace = ? AND vault_id = ? AND credential_id = ?"


class Kept:
    """`vault.oauth.ports.Credentials` over the rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._database = rows.safe.database

    def generation(self, key: Key) -> int:
        """Of now."""
        return self._rows.get(key.workspace, key.id).generation

    def load(self, key: Key) -> Credential:
        """Opened."""
        row = self._rows.get(key.workspace, key.id)
        held = {name: Secret(value) for name, value in self._rows.secrets(row).items()}
        client = _client(row)
        self._database.execute(_LIFETIMES)
        found = self._database.one(
            f"SELECT seconds FROM oauth_lifetimes WHERE {_WHERE}",  # noqa: S608
            key,
        )
        tokens = Tokens(
            held["access_token"],
            held.get("refresh_token") if row.policy["refresh"] else None,
            row.policy["expires_at"],
            found[0] if found else None,
        )
        return Credential(key, row.generation, client, tokens, held.get("client_secret"))

    def commit(self, key: Key, tokens: Tokens) -> int:
        """New ones, in the transaction of the caller."""
        row = self._rows.get(key.workspace, key.id)
        secrets = {"access_token": tokens.access.reveal()}
        if tokens.refresh is not None:
            secrets["refresh_token"] = tokens.refresh.reveal()
        if tokens.lifetime is not None:
            self._database.execute(_LIFETIMES)
            self._database.execute(
                "INSERT OR REPLACE INTO oauth_lifetimes VALUES (?, ?, ?, ?)",
                (*key, tokens.lifetime),
            )
        policy = {**row.policy, "expires_at": tokens.expires}
        return self._rows.change(replace(row, policy=policy), secrets).generation


class Refreshing:
    """The engine, as a use of a credential asks it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def fresh(self, key: tuple[str, str, str]) -> None:
        """See to it that the access token that is kept is of use. CREDENTIAL_NEEDS_CONSENT, …"""
        await self._engine.fresh(Key(*key))

    async def renewed(self, key: tuple[str, str, str]) -> str:
        """Refresh it if that is due or its refresh token is doubted; how that went, or nothing."""
        return await self._engine.renewed(Key(*key))

    async def refused(self, key: tuple[str, str, str], generation: int) -> bool:
        """A server took none of this generation; whether there is another."""
        return await self._engine.refused(Key(*key), generation)


def _client(row: Row) -> Client:
    told = row.policy["refresh"] or {"token_endpoint": "", "client_id": ""}
    return Client(
        told["token_endpoint"],
        told["client_id"],
        Authentication(told.get("token_endpoint_auth", "none")),
        told.get("resource"),
        told.get("scope"),
        tuple(private_network(each) for each in row.policy["private_networks"]),
    )
