"""Enrolment tokens: one operator makes them, for its own workspace; one machine uses each."""

import hmac
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256

from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Identity, Role, identity_uri
from carpal.ids import check_id, check_name
from carpal.proof import SECRET_BYTES
from carpal.status import Reason
from vault.store.rows import TokenRow
from vault.store.store import Store

TTL_DEFAULT = timedelta(hours=1)
TTL_MIN = timedelta(minutes=1)
TTL_MAX = timedelta(hours=24)
"""A token is for now: one that lies around for days is a password."""


class Tokens:
    """The tokens of one trust domain."""

    def __init__(self, trust_domain: str, store: Store, now: Callable[[], datetime]) -> None:
        self._trust_domain = trust_domain
        self._store = store
        self._now = now

    def create(
        self,
        operator: Identity,
        *,
        token_id: str,
        secret: bytes,
        name: str,
        pool: str,
        workspace: str,
        ttl: timedelta | None,
    ) -> TokenRow:
        """Register a token; the same id and content again is the first answer.

        Raises INVALID_FIELD, ROLE_NOT_ALLOWED for another's workspace, and
        ID_REUSED when the id is there with other content.
        """
        workspace = own_workspace(operator, workspace)
        check_id(token_id, "token_id")
        check_name(name, "name")
        if pool:
            check_name(pool, "pool")
        if len(secret) != SECRET_BYTES:
            raise invalid("secret", f"must be {SECRET_BYTES} bytes")
        life = TTL_DEFAULT if ttl is None else ttl
        if not TTL_MIN <= life <= TTL_MAX:
            raise invalid("ttl", "must be 1 minute to 24 hours")
        digest = _content_digest(secret, name, pool, workspace, life)
        now = self._now()
        seconds = int(now.timestamp())
        self._store.erase_expired_secrets(seconds)  # kept, whatever becomes of this request
        with self._store.transaction():
            known = self._store.token(token_id)
            if known is not None:
                if hmac.compare_digest(known.content_digest, digest):
                    return known
                raise refuse(Reason.ID_REUSED, f"token {token_id!r} exists with other content")
            self._check_name_free(name, workspace)
            token = TokenRow(
                token_id=token_id,
                workspace=workspace,
                name=name,
                pool=pool,
                secret=secret,
                content_digest=digest,
                expires=int((now + life).timestamp()),
            )
            self._store.add_token(token)
            return token

    def list(self, operator: Identity, workspace: str) -> list[TokenRow]:
        """The tokens of the operator's workspace."""
        own = own_workspace(operator, workspace)
        self._store.erase_expired_secrets(int(self._now().timestamp()))
        return self._store.tokens(own)

    def revoke(self, operator: Identity, token_id: str) -> None:
        """Make a token of the operator's workspace useless; one that is gone is that already."""
        check_id(token_id, "token_id")
        self._store.revoke_token(token_id, operator.workspace, int(self._now().timestamp()))

    def _check_name_free(self, name: str, workspace: str) -> None:
        """A daemon's URI does not hold its workspace, so a name may be of one workspace only."""
        uri = identity_uri(self._trust_domain, Role.DAEMON, name)
        if self._store.workspace_of(uri) not in (
            None,
            workspace,
        ) or self._store.name_promised_elsewhere(name, workspace):
            raise invalid("name", f"{name!r} is taken; choose another")


def own_workspace(operator: Identity, workspace: str) -> str:
    """The operator's own workspace, which an empty one means too."""
    if workspace and workspace != operator.workspace:
        raise _not_yours(operator, workspace)
    return operator.workspace


def _not_yours(operator: Identity, workspace: str) -> CarpalError:
    return refuse(
        Reason.ROLE_NOT_ALLOWED,
        f"an operator of workspace {operator.workspace!r} may not act in {workspace!r}",
        action="use an identity of that workspace",
    )


def _content_digest(secret: bytes, name: str, pool: str, workspace: str, ttl: timedelta) -> bytes:
    """Tells the same content again from other content, without keeping the secret."""
    text = "\0".join((name, pool, workspace, str(int(ttl.total_seconds()))))
    return sha256(secret + text.encode()).digest()
