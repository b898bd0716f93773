"""OAuth credentials in a real safe, as small as `vault.oauth.ports.Credentials` allows."""

import json
from dataclasses import asdict

from carpal.errors import refuse
from carpal.status import Reason
from vault.oauth.ports import Authentication, Client, Credential, Key, Tokens
from vault.safe.safe import Safe
from vault.seal.envelope import Place, policy_hash
from vault.secret import Secret

KEY = Key("default", "v1", "linear")


class Kept:
    """All of a safe."""

    def __init__(self, safe: Safe) -> None:
        self.safe = safe
        safe.database.execute(
            "CREATE TABLE IF NOT EXISTS test_oauth (id TEXT PRIMARY KEY, policy BLOB)"
        )

    def add(self, key: Key, client: Client, tokens: Tokens, secret: Secret | None = None) -> int:
        policy = json.dumps(asdict(client)).encode()
        with self.safe.transaction():
            self.safe.database.execute(
                "INSERT OR REPLACE INTO test_oauth VALUES (?, ?)", ("/".join(key), policy)
            )
            if secret is not None:
                self.safe.put(_place(key, "secret"), policy_hash(policy), secret.reveal())
            return self.commit(key, tokens)

    def generation(self, key: Key) -> int:
        found = self.safe.generation(_place(key))
        if not found:
            raise refuse(Reason.CREDENTIAL_NOT_FOUND, f"no credential {key.id!r}")
        return found

    def load(self, key: Key) -> Credential:
        policy = self._policy(key)
        sealed = self.safe.get(_place(key), policy_hash(policy))
        assert sealed is not None
        said, told = json.loads(policy), json.loads(sealed)
        secret = self.safe.get(_place(key, "secret"), policy_hash(policy))
        return Credential(
            key,
            self.generation(key),
            Client(
                said["token_endpoint"],
                said["client_id"],
                Authentication(said["authentication"]),
                said["resource"],
                said["scope"],
            ),
            Tokens(
                Secret(told["access"]),
                Secret(told["refresh"]) if told["refresh"] else None,
                told["expires"],
                told["lifetime"],
            ),
            Secret(secret) if secret else None,
        )

    def commit(self, key: Key, tokens: Tokens) -> int:
        told = {
            "access": tokens.access.reveal().decode(),
            "refresh": tokens.refresh.reveal().decode() if tokens.refresh else None,
            "expires": tokens.expires,
            "lifetime": tokens.lifetime,
        }
        policy = policy_hash(self._policy(key))
        return self.safe.put(_place(key), policy, json.dumps(told).encode())

    def _policy(self, key: Key) -> bytes:
        row = self.safe.database.one("SELECT policy FROM test_oauth WHERE id = ?", ("/".join(key),))
        if row is None:
            raise refuse(Reason.CREDENTIAL_NOT_FOUND, f"no credential {key.id!r}")
        return bytes(row[0])


def _place(key: Key, field: str = "tokens") -> Place:
    return Place("credential", *key, field)
