"""A vault from before there was a seal gets one: by command, while it does not run.

One transaction seals everything; until then nothing has changed, and after it the keys that lay
in the open are removed. Whatever kills it, run again it goes on.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.errors import CarpalError, refuse
from carpal.fault_points import point
from carpal.status import Reason
from vault.authority.authorities import Phase
from vault.authority.ca import Authority, key_id
from vault.database import Database
from vault.files import VaultFiles
from vault.making import new_vault
from vault.opened import local_actor, open_all, open_safe
from vault.safe.seal import seal_of
from vault.seal.seals import SealKind, make


def migrate(
    files: VaultFiles, kind: SealKind = SealKind.FILE, settings: Mapping[str, Any] | None = None
) -> bool:
    """Seal what lies in the open; False when there was nothing to do.

    Raises CONFIG_INVALID while the vault runs, and when a key is not that of its certificate.
    """
    files.check_made()
    with files.only_process():
        with closing(Database(files.store)) as database:
            database.check()
            sealed = seal_of(database) is not None
            if sealed and not files.plain_keys:
                return False
            if not sealed:
                found = _plain_authorities(files)
                row, kek = make(
                    kind, settings or {"path": files.seal_key}, files.given, files.folder
                )
                point("vault.migrate.seal_made")
                new_vault(database, files, row, kek, found)
        _finish(files)
    return True


def _finish(files: VaultFiles) -> None:
    """Remove the keys in the open, once the safe gives back all that are needed."""
    with open_safe(files) as safe, open_all(files, safe) as it:
        it.authorities()
        it.audit.written("migrate", actor=local_actor(), count=len(files.plain_keys))
        for path in files.plain_keys:
            point("vault.migrate.before_removed")
            _destroy(path)
            point("vault.migrate.removed")


def _plain_authorities(files: VaultFiles) -> list[Authority]:
    """The CAs there are, with the keys that lie in the open. A crash may have left others."""
    keys = [_plain(path) for path in files.plain_keys]
    found: list[Authority] = []

    def key_of(certificate: x509.Certificate) -> Authority:
        for key in keys:
            if key.public_key() == certificate.public_key():
                found.append(Authority(key, certificate))
                return found[-1]
        raise _bad(files.folder, f"has no key for the CA {key_id(certificate)[:8]}")

    authorities = files.load_authorities(key_of)
    if authorities.phase is Phase.PREPARED and authorities.other is not None:
        key_of(authorities.other)
    return found


def _plain(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        raise _bad(path, "cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _bad(path, "is no key of a CA")
    return key


def _destroy(path: Path) -> None:
    """Write over it before it goes; what the disk makes of that is the disk's."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.pwrite(handle, bytes(os.fstat(handle).st_size), 0)
        os.fsync(handle)
    finally:
        os.close(handle)
    path.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _bad(path: Path, problem: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, f"{path} {problem}", action="restore it; nothing changed")
