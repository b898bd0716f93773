"""What an operator does with credentials, in its own workspace: secrets go in, none comes out.

Calls are those of the store: one thread, no overlap. Who calls has written the intent down.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from carpal.errors import invalid, refuse
from carpal.identity import Identity
from carpal.ids import check_id, check_name
from carpal.status import Reason
from vault.authority.tokens import own_workspace
from vault.credentials.references import WHERE
from vault.credentials.rows import ACTIVE, Row, Rows
from vault.credentials.rules import PER_VAULT, Key, check_secrets, kind_of, parsed
from vault.sources.sources import Sources

DEFAULT_VAULT = "default"
NAME_MAX = 128


class CredentialDesk:
    """Of one vault process."""

    def __init__(
        self, rows: Rows, now: Callable[[], datetime], sources: Sources | None = None
    ) -> None:
        self.rows = rows
        self.sources = sources or Sources()
        self._now = now

    def create(
        self,
        operator: Identity,
        *,
        credential_id: str,
        workspace: str,
        vault_id: str,
        display_name: str,
        kind: str,
        policy: bytes,
        secrets: Mapping[str, bytes],
    ) -> Row:
        """A new one; the same id and content again is the first answer.

        Raises INVALID_FIELD, ROLE_NOT_ALLOWED, ID_REUSED, and ALREADY_EXISTS of its reason when
        the vault has one for the same server or by the same name.
        """
        workspace = own_workspace(operator, workspace)
        check_id(credential_id, "credential_id")
        vault_id = check_name(vault_id or DEFAULT_VAULT, "vault_id")
        _check_display(display_name)
        what = kind_of(kind)
        told = what.policy(parsed(policy), None)
        check_secrets(what, secrets, told, new=True)
        key = Key(workspace, vault_id, credential_id)
        row = Row(key, display_name, kind, told, 1, ACTIVE)
        self._check_sources(row)
        with self.rows.safe.transaction():
            known = self.rows.find(workspace, credential_id)
            if known is not None:
                if known == row and _same(self.rows.secrets(known), secrets):
                    return known
                raise refuse(
                    Reason.ID_REUSED, f"credential {credential_id!r} exists with other content"
                )
            all_rows = self.rows.all(workspace, vault_id)
            beside = [e for e in all_rows if e.archived is None and e.owner == row.owner]
            if len(beside) >= PER_VAULT:
                raise invalid("vault_id", f"the vault {vault_id!r} has {PER_VAULT} already")
            if (what.key, row.unique) in {(kind_of(e.kind).key, e.unique) for e in beside}:
                raise refuse(
                    Reason.ID_REUSED,
                    f"the vault {vault_id!r} has a credential of the same {what.key}",
                    action="update that one, archive it, or use another vault",
                )
            self.rows.add(row, dict(secrets), int(self._now().timestamp()))
        return row

    def update(
        self,
        operator: Identity,
        credential_id: str,
        *,
        expected: int,
        display_name: str | None,
        policy: bytes | None,
        secrets: Mapping[str, bytes],
    ) -> Row:
        """Another secret, policy or name: used from the next request on.

        Raises CREDENTIAL_NOT_FOUND, VERSION_CONFLICT, INVALID_FIELD.
        """
        with self.rows.safe.transaction():
            before = self.rows.get(operator.workspace, credential_id)
            if before.generation != expected:
                raise refuse(
                    Reason.VERSION_CONFLICT,
                    f"credential {credential_id!r} is at generation {before.generation}",
                )
            what = kind_of(before.kind)
            after = before
            if display_name is not None:
                _check_display(display_name)
                after = replace(after, display_name=display_name)
            if policy is not None:
                after = replace(after, policy=what.policy(parsed(policy), before.policy))
                self._check_sources(after)
            check_secrets(what, secrets, after.policy, new=False)
            if secrets:
                after = replace(after, state=ACTIVE)
            if "access_token" in secrets and policy is None:
                # How long the new one is good for was not said, and is not that of the old one.
                after = replace(after, policy={**after.policy, "expires_at": None})
            return self.rows.change(after, dict(secrets))

    def _check_sources(self, row: Row) -> None:
        for name, reference in row.elsewhere.items():
            self.sources.check(row.key.workspace, reference, f"{WHERE}.{name}")

    def list(self, operator: Identity, workspace: str, vault_id: str) -> list[Row]:
        """Those of the operator's workspace."""
        return self.rows.all(own_workspace(operator, workspace), vault_id)

    def archive(self, operator: Identity, credential_id: str) -> Row:
        """Destroy its secrets; a second time changes nothing."""
        with self.rows.safe.transaction():
            row = self.rows.find(operator.workspace, credential_id)
            if row is None:
                row = self.rows.get(operator.workspace, credential_id)
            if row.archived is None:
                row = self.rows.archive(row, int(self._now().timestamp()))
        self.rows.safe.database.forget()
        return row


def _check_display(name: str) -> None:
    if len(name) > NAME_MAX or not name.isprintable():
        raise invalid("display_name", f"must be one line of at most {NAME_MAX} characters")


def _same(held: Mapping[str, bytes], given: Mapping[str, bytes]) -> bool:
    return held.keys() == given.keys() and all(
        hmac.compare_digest(held[name], given[name]) for name in held
    )
