"""A vault's database with its safe, in a folder: no CA, and a key that the test has."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vault.database import Database
from vault.files import VaultFiles
from vault.making import new_vault
from vault.safe.anchor import Anchor
from vault.safe.safe import Safe
from vault.safe.seal import seal_of
from vault.seal.kek import canary, key_id
from vault.seal.seals import SealKind, SealRow
from vault.store.store import Store

KEK = bytes(range(32))


@contextmanager
def safe_in(folder: Path, *, check: bool = True) -> Iterator[Safe]:
    """Made at first, and opened again later."""
    files = VaultFiles(folder)
    with closing(Database(files.store)) as database:
        if seal_of(database) is None:
            row = SealRow(SealKind.DESCRIPTOR, {}, key_id(KEK), canary(KEK))
            new_vault(database, files, row, KEK, [])
        safe = Safe(database, KEK, Anchor(files.anchor))
        if check:
            safe.check()
        yield safe


@contextmanager
def store_in(folder: Path) -> Iterator[Store]:
    """The store beside it."""
    with safe_in(folder) as safe:
        yield Store(safe)
