"""The seal that a database has, and a safe with nothing in it."""

import json

from carpal.errors import refuse
from carpal.status import Reason
from vault.database import RESTORE, Database
from vault.safe.marks import manifest_of, mark_key
from vault.safe.schema import SAFE
from vault.seal.keyring import new_term, wrap_term
from vault.seal.seals import SealKind, SealRow


def seal_of(database: Database) -> SealRow | None:
    """The seal of a database; None when it has none yet."""
    if database.one("SELECT 1 FROM sqlite_master WHERE name = 'seal'") is None:
        return None
    row = database.one("SELECT kind, parameters, key_id, canary FROM seal")
    if row is None:
        raise refuse(Reason.VAULT_CORRUPT, f"{database.path} lost its seal", action=RESTORE)
    try:
        return SealRow(SealKind(row[0]), json.loads(row[1]), row[2], row[3])
    except ValueError:
        raise refuse(
            Reason.VAULT_CORRUPT, f"{database.path} has a seal that is none", action=RESTORE
        ) from None


def place_seal(database: Database, row: SealRow) -> None:
    """Note a seal, in the transaction that wraps the keyring by it."""
    database.execute(
        "INSERT OR REPLACE INTO seal VALUES (1, ?, ?, ?, ?)",
        (row.kind, json.dumps(dict(row.parameters)), row.key_id, row.canary),
    )


def new_safe(database: Database, row: SealRow, kek: bytes, seconds: int) -> None:
    """The tables of a safe with nothing in it, in the transaction of whoever makes it."""
    database.execute(SAFE)
    place_seal(database, row)
    term = new_term()
    database.execute("INSERT INTO keyring VALUES (1, ?, ?, 0)", (wrap_term(kek, 1, term), seconds))
    manifest = manifest_of(mark_key(term), 0, 0, 0)
    database.execute("INSERT INTO epoch VALUES (1, 0, ?, 0, ?)", (bytes(32), manifest))
