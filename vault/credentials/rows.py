"""Credentials in the database: what may be known of one in a row, its secrets in the safe.

Calls are those of the store: one thread, no overlap; what changes anything is in a transaction
of the safe.
"""

import json
import logging
from dataclasses import dataclass, replace

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.credentials.references import kept_instead, references
from vault.credentials.rules import Key, Policy, binding, encoded, kind_of
from vault.safe.safe import Safe
from vault.seal.envelope import Place, policy_hash
from vault.sources.reference import Reference

_log = logging.getLogger(__name__)

ACTIVE, ARCHIVED = "active", "archived"
_POLICY = "policy"
"""Where a credential without secrets has something all the same, that is bound to its policy."""
_COLUMNS = (
    "workspace, vault_id, credential_id, display_name, kind, policy, generation, state, archived"
)

_TEXT = "CAST(policy AS TEXT)"
_OWNER = (
    f"CASE WHEN json_valid({_TEXT}) THEN COALESCE(json_extract({_TEXT}, '$.owner'), '') ELSE '' END"
)
"""Looked at in the database: one vault may have those of very many users."""


@dataclass(frozen=True, slots=True)
class Row:
    """A credential, without its secrets."""

    key: Key
    display_name: str
    kind: str
    policy: Policy
    generation: int
    """Another one with each change, of whatever."""
    state: str
    archived: int | None = None
    """Unix seconds."""

    @property
    def unique(self) -> str:
        """What is unique in its vault: a server's URL, or a name."""
        return str(self.policy[kind_of(self.kind).key])

    @property
    def owner(self) -> str:
        """The end user whose it is; empty of one that sessions share."""
        return str(self.policy.get("owner", ""))

    @property
    def bound(self) -> bytes:
        """What its secrets are bound to."""
        return policy_hash(*binding(self.kind, self.policy))

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the secrets that it may have."""
        kind = kind_of(self.kind)
        return (*kind.needed, *kind.optional)

    @property
    def elsewhere(self) -> dict[str, Reference]:
        """Those of them that lie in a secret manager, by name."""
        return references(self.policy)


class Rows:
    """Of one vault process."""

    def __init__(self, safe: Safe) -> None:
        self.safe = safe
        self._db = safe.database

    def get(self, workspace: str, credential_id: str) -> Row:
        """One that is there. CREDENTIAL_NOT_FOUND, also when it is archived; CREDENTIAL_CORRUPT."""
        row = self.find(workspace, credential_id)
        if row is None or row.archived is not None:
            raise _not_found(credential_id)
        return row

    def find(self, workspace: str, credential_id: str) -> Row | None:
        """One, also if it is archived."""
        query = f"SELECT {_COLUMNS} FROM credentials WHERE workspace = ? AND credential_id = ?"  # noqa: S608
        row = self._db.one(query, (workspace, credential_id))
        return None if row is None else _row(row)

    def all(self, workspace: str, vault_id: str = "") -> list[Row]:
        """Of a workspace, or of one vault of it; archived ones too, the oldest first."""
        query = (
            f"SELECT {_COLUMNS} FROM credentials WHERE workspace = ? "  # noqa: S608
            "AND (vault_id = ? OR ? = '') ORDER BY created, credential_id"
        )
        return [_row(row) for row in self._db.execute(query, (workspace, vault_id, vault_id))]

    def whole(self, workspace: str, vault_id: str, owner: str = "") -> list[Row]:
        """As `all`, of one vault: those that are shared, and this owner's.

        Without those that are damaged: they harm no other.
        """
        query = (
            f"SELECT {_COLUMNS} FROM credentials WHERE workspace = ? AND vault_id = ? "  # noqa: S608
            f"AND {_OWNER} IN ('', ?) ORDER BY created, credential_id"
        )
        found = []
        for row in self._db.execute(query, (workspace, vault_id, owner)):
            try:
                found.append(_row(row))
            except CarpalError as error:
                if error.reason is not Reason.CREDENTIAL_CORRUPT:
                    raise
        return found

    def everywhere(self) -> list[Row]:
        """Of all workspaces, but what is archived or damaged."""
        found = []
        query = f"SELECT {_COLUMNS} FROM credentials WHERE archived IS NULL"  # noqa: S608
        for row in self._db.execute(query):
            try:
                found.append(_row(row))
            except CarpalError as error:
                _log.error("a credential is damaged", extra={"why": str(error)})
        return found

    def add(self, row: Row, secrets: dict[str, bytes], seconds: int) -> None:
        """A new one."""
        said = (row.display_name, row.kind, encoded(row.policy), row.generation, row.state)
        self._db.execute(
            "INSERT INTO credentials VALUES (?,?,?,?,?,?,?,?,?,?,NULL)",
            (*row.key, *said, b"", seconds),
        )
        self._put(row, {**secrets, **_instead(row)})

    def change(self, row: Row, secrets: dict[str, bytes]) -> Row:
        """Give `row` as it is to be, with new secrets instead of those; its next generation."""
        before = self.get(row.key.workspace, row.key.id)
        if not row.fields:
            self.check(before)
        if before.bound != row.bound:  # what is not new opens by the new policy from now on
            kept = {name: value for name, value in self.secrets(before).items() if value}
            secrets = {**kept, **secrets, **_instead(row)}
        after = replace(row, generation=before.generation + 1)
        self._db.execute(
            "UPDATE credentials SET display_name = ?, policy = ?, generation = ?, state = ? "
            "WHERE workspace = ? AND vault_id = ? AND credential_id = ?",
            (after.display_name, encoded(after.policy), after.generation, after.state, *after.key),
        )
        self._put(after, secrets)
        return after

    def archive(self, row: Row, seconds: int) -> Row:
        """Destroy its secrets, and keep its name."""
        for name in (*row.fields, _POLICY):
            self.safe.shred(_place(row.key, name))
        self._db.execute(
            "UPDATE credentials SET state = ?, archived = ? "
            "WHERE workspace = ? AND vault_id = ? AND credential_id = ?",
            (ARCHIVED, seconds, *row.key),
        )
        return replace(row, state=ARCHIVED, archived=seconds)

    def secrets(self, row: Row) -> dict[str, bytes]:
        """Its secrets by name, those that are here. CREDENTIAL_CORRUPT.

        Also when it does not open that others lie where the row says.
        """
        found = {name: self.safe.get(_place(row.key, name), row.bound) for name in row.fields}
        held = {name: value for name, value in found.items() if value is not None}
        for name, instead in _instead(row).items():
            if row.archived is None and held.pop(name, b"") != instead:
                raise refuse(
                    Reason.CREDENTIAL_CORRUPT, f"the credential {row.key.id!r} does not open"
                )
        return held

    def check(self, row: Row) -> None:
        """CREDENTIAL_CORRUPT when the policy of a credential without secrets is not what it was."""
        if self.safe.get(_place(row.key, _POLICY), row.bound) is None:
            raise refuse(
                Reason.CREDENTIAL_CORRUPT, f"the credential {row.key.id!r} has lost its policy"
            )

    def _put(self, row: Row, secrets: dict[str, bytes]) -> None:
        if not row.fields:
            self.safe.put(_place(row.key, _POLICY), row.bound, row.kind.encode())
        for name, value in secrets.items():
            self.safe.put(_place(row.key, name), row.bound, value)


def _instead(row: Row) -> dict[str, bytes]:
    return {name: kept_instead(each) for name, each in row.elsewhere.items()}


def _place(key: Key, field: str) -> Place:
    return Place("credential", *key, field)


def _row(row: tuple[object, ...]) -> Row:
    workspace, vault_id, credential_id, name, kind, policy, generation, state, archived = row
    try:
        told = json.loads(policy)  # type: ignore[arg-type]
        made = Row(
            Key(str(workspace), str(vault_id), str(credential_id)),
            str(name),
            str(kind),
            told,
            int(generation),  # type: ignore[call-overload]
            str(state),
            archived,  # type: ignore[arg-type]
        )
        _ = made.unique, made.elsewhere
    except (ValueError, KeyError, TypeError, AttributeError, CarpalError):
        raise refuse(
            Reason.CREDENTIAL_CORRUPT, f"the credential {credential_id!r} is damaged"
        ) from None
    return made


def _not_found(credential_id: str) -> CarpalError:
    return refuse(Reason.CREDENTIAL_NOT_FOUND, f"there is no credential {credential_id!r}")
