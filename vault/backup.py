"""A backup of the vault, whole while it runs; and putting one back, which is never done unseen.

It is one file: a tar of the database, copied by SQLite's own backup, and the CAs' certificates.
The seal's key is not in it, nor is the audit, which goes on.
"""

import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.tls import private_folder, write_file
from vault.audit.opening import AuditReader
from vault.credentials.rows import Rows
from vault.database import Database
from vault.files import VaultFiles
from vault.oauth.states import States
from vault.opened import last_epoch, local_actor, open_all, open_safe
from vault.safe.seal import seal_of

_DATABASE = "vault.db"
_SIZE_MAX = 64 * 1024**3
_SMALL_MAX = 1024 * 1024
_TRIES = 3


def backup(files: VaultFiles, out: Path) -> None:
    """Write one, also while the vault runs; never over a file. CONFIG_INVALID.

    UNAVAILABLE while commands replace the CA faster than it is written.
    """
    files.check_made()
    if out.exists():
        raise refuse(Reason.CONFIG_INVALID, f"{out} is there already", action="choose another name")
    private_folder(out.parent)
    with tempfile.TemporaryDirectory(prefix=".vault-backup-", dir=out.parent) as scratch:
        for each in range(_TRIES):
            stamp = files.stamp()
            packed = _packed(files, Path(scratch, str(each)))
            if files.stamp() == stamp:  # else its certificates may be of other keys than it has
                packed.rename(out)
                return
    raise refuse(Reason.UNAVAILABLE, "the CA is being replaced", action="try again")


def _packed(files: VaultFiles, folder: Path) -> Path:
    folder.mkdir()
    copy, packed = folder / _DATABASE, folder / "packed"
    with closing(Database(files.store)) as database:
        database.copy_to(copy)
    with packed.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        with tarfile.open(fileobj=file, mode="w") as tar:
            for path in (copy, *_small(files)):
                tar.add(path, arcname=path.name)
        file.flush()
        os.fsync(file.fileno())
    return packed


def restore(files: VaultFiles, source: Path | None, *, accept: bool) -> list[str]:
    """Put a backup in the place of what is there, while the vault does not run; what to know then.

    Without a `source` what is there already is accepted. Raises VAULT_ROLLED_BACK, having changed
    nothing, for one that is older than the database was, unless that is accepted.
    """
    with files.only_process():
        if source is None:
            return _accepted(files) if accept else []
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=files.state) as scratch:
            held = VaultFiles(Path(scratch), files.given)
            _unpack(source, held)
            with closing(Database(held.store)) as database:
                database.check()
                if seal_of(database) is None:
                    raise _bad(source, "is of a vault before there was a seal")
            if not accept:
                _check(files, held)
            for path in (*_small(files), files.store, *_beside(files.store)):
                path.unlink(missing_ok=True)
            for path in _small(held):
                write_file(files.folder / path.name, path.read_bytes())
            held.store.rename(files.store)
        return _accepted(files) if accept else []


def _check(files: VaultFiles, held: VaultFiles) -> None:
    """The backup is as new as what the anchor and the audit beside us say."""
    with _at(held, files) as seen, open_safe(seen, key_folder=files.folder):
        pass


@contextmanager
def _at(held: VaultFiles, files: VaultFiles) -> Iterator[VaultFiles]:
    """The unpacked backup, with our anchor and audit beside it."""
    if files.anchor.exists():
        write_file(held.anchor, files.anchor.read_bytes())
    if files.audit.exists():
        held.audit.symlink_to(files.audit.absolute())
    yield held
    held.audit.unlink(missing_ok=True)


def _accepted(files: VaultFiles) -> list[str]:
    """Make the database that is there the newest, and say in the audit that it was put back.

    What a copy may be used for twice is made useless: enrolment tokens; and credentials whose
    refresh token may have been used since are to be asked for anew.
    """
    told = last_epoch(files)
    with open_safe(files, accept=True) as safe, open_all(files, safe) as it:
        noted = safe.anchor.read() if files.anchor.exists() else None
        newest = max(each.epoch for each in (told, noted, safe.mark) if each is not None)
        since = safe.mark.epoch
        with it.audit.intent_now(
            "restore.accept", actor=local_actor(), since=since, through=newest
        ) as record:
            tokens = unknown = 0

            def useless() -> None:
                nonlocal tokens, unknown
                tokens = it.store.erase_secrets()
                unknown = States(Rows(it.safe)).doubt()
                it.store.restate_witnesses()

            mark = safe.accept(newest, useless)  # at once: a crash between would leave them live
            record.add(epoch=mark.epoch, manifest=mark.manifest, count=tokens)
        revoked = {row.identity for row in it.store.revocations_since(-1)}
        lost = sorted(_revoked_since(files, since) - revoked)
    said = [f"accepted: the database of change {since} is now the newest, {mark.epoch}"]
    if tokens:
        said.append(f"{tokens} enrolment tokens are of no use any more")
    if unknown:
        said.append(f"{unknown} credentials with a refresh token are to be validated")
    return [*said, *(f"{uri} was revoked since, and is not any more: revoke it" for uri in lost)]


def _revoked_since(files: VaultFiles, since: int) -> set[str]:
    """Whom the audit says were revoked after a state of the database."""
    found: set[str] = set()
    after, newer = 0, False
    with closing(AuditReader(files.audit)) as reader:
        while rows := reader.after(after, 1_000):
            for row in rows:
                said = json.loads(row.line)
                newer = newer or int(said.get("epoch", 0)) > since
                if newer and said.get("action") == "revoke" and "identity" in said:
                    found.add(str(said["identity"]))
            after = rows[-1].number
    return found


def _unpack(source: Path, held: VaultFiles) -> None:
    private_folder(held.folder)
    wanted = {_DATABASE, *(path.name for path in _all_small(held))}
    try:
        with tarfile.open(source, mode="r:") as tar:
            for member in tar:
                if member.name not in wanted or not member.isfile():
                    raise _bad(source, "is no backup of a vault")
                most = _SIZE_MAX if member.name == _DATABASE else _SMALL_MAX
                file = tar.extractfile(member)
                if file is None or member.size > most:
                    raise _bad(source, "is no backup of a vault")
                with (held.folder / member.name).open("xb") as out:
                    while part := file.read(1024 * 1024):
                        out.write(part)
                    out.flush()
                    os.fsync(out.fileno())
    except (OSError, tarfile.TarError) as error:
        raise _bad(source, f"cannot be read: {error}") from None
    held.check_made()


def _small(files: VaultFiles) -> list[Path]:
    return [path for path in _all_small(files) if path.exists()]


def _all_small(files: VaultFiles) -> list[Path]:
    return [files.ca, files.next_ca, files.cross, files.rollover]


def _beside(store: Path) -> list[Path]:
    return [store.with_name(f"{store.name}{end}") for end in ("-wal", "-shm")]


def _bad(path: Path, problem: str) -> CarpalError:
    return refuse(
        Reason.CONFIG_INVALID,
        f"{path} {problem}",
        action="give a file that `carpal vault backup` wrote; nothing changed",
    )
