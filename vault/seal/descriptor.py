"""A seal key that whoever starts the vault hands in: an open descriptor, or systemd's credential.

An environment variable would stay in /proc/PID/environ; a descriptor is read once and closed.
"""

import os
from contextlib import suppress
from pathlib import Path

from vault.seal.envelope import KEY_SIZE
from vault.seal.file import CREDENTIALS, read_key_file
from vault.seal.kek import bad_key, check_kek

NAME = "carpal-seal"
"""As in `LoadCredential=carpal-seal:/etc/carpal/seal.key`, or `LoadCredentialEncrypted=`."""


def read_descriptor(number: int) -> bytes:
    """The key, from a descriptor that this process inherited; it is closed then."""
    data = b""
    try:
        while len(data) <= KEY_SIZE and (part := os.read(number, KEY_SIZE + 1 - len(data))):
            data += part
    except OSError as error:
        raise bad_key(f"descriptor {number}: {error.strerror}") from None
    with suppress(OSError):  # it was read to its end: nothing is lost
        os.close(number)
    return check_kek(data, f"descriptor {number}")


def credential_path() -> Path | None:
    """Where systemd put the key for this service; None when it put none."""
    folder = os.environ.get(CREDENTIALS)
    path = Path(folder, NAME) if folder else None
    return path if path is not None and path.exists() else None


def read_handed_in(number: int | None, database_folder: Path) -> bytes:
    """By descriptor, else by systemd. CONFIG_INVALID when there is neither."""
    if number is not None:
        return read_descriptor(number)
    if (path := credential_path()) is not None:
        return read_key_file(path, database_folder)
    raise bad_key(f"it is handed in by --seal-fd N, or by systemd's LoadCredential={NAME}:FILE")
