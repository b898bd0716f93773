"""The vault, opened by its seal: for the service, and for each command on the vault's machine."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from carpal.audit_files import AuditFiles
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.audit.audit import Audit
from vault.audit.opening import AuditReader, open_audit
from vault.audit.wrap import AuditWrap
from vault.authority import authority_keys
from vault.authority.authorities import Authorities
from vault.authority.ca import Authority
from vault.database import Database
from vault.files import VaultFiles
from vault.safe.anchor import Anchor, Mark
from vault.safe.safe import Safe
from vault.safe.seal import seal_of
from vault.seal.seals import KeyNotGiven, open_seal
from vault.store.store import Store
from vault.store.tables import SCHEMA, schema_of


@dataclass(frozen=True, slots=True)
class Opened:
    """What there is to work with while it is open."""

    files: VaultFiles
    safe: Safe
    store: Store
    audit: Audit

    def key_of(self, certificate: x509.Certificate) -> Authority:
        """A CA with its key."""
        return authority_keys.load(self.safe, certificate)

    def authorities(self) -> Authorities:
        """The CAs as they are on disk now."""
        return self.files.load_authorities(self.key_of)


@contextmanager
def open_safe(
    files: VaultFiles,
    *,
    thorough: bool = False,
    accept: bool = False,
    key_folder: Path | None = None,
) -> Iterator[Safe]:
    """The safe alone, checked: nothing is written but what a crash had left.

    Raises CONFIG_INVALID when there is none, or no good key; SEAL_KEY_WRONG; VAULT_SEALED when the
    key is one that must be handed in; VAULT_ROLLED_BACK unless that is to be accepted;
    VAULT_CORRUPT. `thorough` also has SQLite look through the whole file; `key_folder` is where
    the database is to be, if it is elsewhere now.
    """
    files.check_made()
    with closing(Database(files.store)) as database:
        if thorough:
            database.check()
        schema = schema_of(database)
        seal = seal_of(database)
        if seal is None or schema < SCHEMA:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"{files.folder} is of a vault before there was a seal",
                action="stop the vault and run `carpal vault migrate`, once",
            )
        try:
            kek = open_seal(seal, files.given, key_folder or files.folder)
        except KeyNotGiven:
            raise refuse(
                Reason.VAULT_SEALED,
                f"the vault is sealed by a key that is handed in ({seal.kind})",
                action="give --passphrase-file FILE or --seal-fd N; one that runs is opened by "
                "`carpal vault unseal`",
            ) from None
        safe = Safe(database, kek, Anchor(files.anchor))
        if not accept:
            told = last_epoch(files)  # first: what is written meanwhile makes the safe newer
            safe.check()
            _check_audit(told, safe.mark)
            Store(safe).check_witnesses()
        yield safe


@contextmanager
def opened(files: VaultFiles, *, thorough: bool = False, accept: bool = False) -> Iterator[Opened]:
    """The vault, with its audit. Raises as `open_safe`."""
    with open_safe(files, thorough=thorough, accept=accept) as safe:
        if files.plain_keys:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"{files.plain_keys[0]} lies there unsealed",
                action="finish with `carpal vault migrate`",
            )
        with open_all(files, safe) as it:
            yield it


@contextmanager
def open_all(files: VaultFiles, safe: Safe, first_key: bytes = b"") -> Iterator[Opened]:
    """What there is beside a safe that is open. Raises VAULT_CORRUPT.

    `first_key` is the audit's, where it has none yet.
    """
    first = first_key or os.urandom(32)
    with open_audit(files.audit, AuditWrap(safe), first_key=first) as audit:

        def changed(mark: Mark) -> None:
            audit.event("changed", epoch=mark.epoch, manifest=mark.manifest)

        safe.changed = changed
        yield Opened(files, safe, Store(safe), audit)


def authorities_of(files: VaultFiles) -> Authorities:
    """The CAs as they are on disk now, with their keys."""
    with open_safe(files) as safe:
        return files.load_authorities(lambda each: authority_keys.load(safe, each))


def authority_of(files: VaultFiles) -> Authority:
    """The CA that signs now, with its key."""
    return authorities_of(files).signing


def local_actor() -> str:
    """Who runs a command on the vault's machine, as the audit has it."""
    return f"local:{os.getuid()}"


def last_epoch(files: VaultFiles) -> Mark | None:
    """The newest state of the database that the audit speaks of."""
    if not AuditFiles(files.audit).log.exists():
        return None
    with closing(AuditReader(files.audit)) as reader:
        line = reader.last_with("manifest")
    if line is None:
        return None
    said = json.loads(line)
    return Mark(int(said["epoch"]), str(said["manifest"]))


def _check_audit(told: Mark | None, mark: Mark) -> None:
    if told is None or told.epoch < mark.epoch or told == mark:
        return
    raise _rolled_back(told, mark)


def _rolled_back(told: Mark, mark: Mark) -> CarpalError:
    return refuse(
        Reason.VAULT_ROLLED_BACK,
        f"the vault's database is not what it was last: the audit knows change {told.epoch}, "
        f"and it is at {mark.epoch}",
    )
