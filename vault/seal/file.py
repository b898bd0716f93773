"""A seal key in a file of its own: for its owner alone, and not beside what it seals."""

import os
import stat
from pathlib import Path

from carpal.tls import private_folder, write_file
from vault.seal.envelope import KEY_SIZE
from vault.seal.kek import bad_key, check_kek, new_kek

CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""Where systemd's `LoadCredential` puts files for one service; access is by ACL there."""


def read_key_file(path: Path, database_folder: Path) -> bytes:
    """The key. CONFIG_INVALID for one that others can read, or that lies beside the database."""
    check_place(path, database_folder)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise bad_key(f"{path}: {error.strerror}") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise bad_key(f"{path} is no file")
        if found.st_uid not in (os.geteuid(), 0):
            raise bad_key(f"{path} is owned by user {found.st_uid}, not by the vault's")
        allowed = 0o640 if _is_credential(path) else 0o600  # the group's bits are an ACL's mask
        if stat.S_IMODE(found.st_mode) & ~allowed:
            raise bad_key(f"{path} is open to others; run: chmod 400 {path}")
        return check_kek(os.read(handle, KEY_SIZE + 1), str(path))
    finally:
        os.close(handle)


def make_key_file(path: Path, database_folder: Path) -> bytes:
    """The key in the file, made anew when there is none; never written over."""
    check_place(path, database_folder)
    if not path.exists():
        private_folder(path.parent)
        write_file(path, new_kek(), mode=0o400)
    return read_key_file(path, database_folder)


def check_place(path: Path, database_folder: Path) -> None:
    """CONFIG_INVALID when a backup of the database's folder would take the key with it."""
    if path.resolve().is_relative_to(database_folder.resolve()):
        raise bad_key(f"{path} is in the folder of the database that it seals")


def _is_credential(path: Path) -> bool:
    folder = os.environ.get(CREDENTIALS)
    return bool(folder) and path.parent == Path(str(folder))
