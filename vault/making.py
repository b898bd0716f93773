"""A safe over a new database, or over one from before there was a seal: one transaction.

The anchor is written before the commit: a crash between the two leaves what was there, and an
anchor that the next try writes over.
"""

import time
from collections.abc import Sequence

from carpal.fault_points import point
from vault.audit.wrap import make_audit_keys
from vault.authority import authority_keys
from vault.authority.ca import Authority
from vault.database import Database
from vault.files import VaultFiles
from vault.safe.anchor import Anchor
from vault.safe.safe import Safe
from vault.safe.seal import new_safe
from vault.seal.seals import SealRow
from vault.store.store import Store
from vault.store.tables import make_tables


def new_vault(
    database: Database, files: VaultFiles, row: SealRow, kek: bytes, keys: Sequence[Authority]
) -> None:
    """The tables, the safe, and in it these CAs' keys and what the database had in the open."""
    anchor = Anchor(files.anchor)
    with database.transaction():
        live = make_tables(database)
        new_safe(database, row, kek, int(time.time()))
        safe = Safe(database, kek, anchor)
        store = Store(safe)
        for authority in keys:
            authority_keys.put(safe, authority)
        make_audit_keys(safe)
        for token in live:
            store.hold_secret(token)
        for revoked in store.revocations_since(-1):
            store.bear_witness(revoked.identity)
        mark = safe.sign_first()
        point("vault.making.before_anchored")
        anchor.raise_to(mark, anyway=True)
        point("vault.making.anchored")
    point("vault.making.committed")
    database.forget()  # what it had in the open is overwritten
