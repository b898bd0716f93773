"""What a command or the service is handed to open the seal: from a file, stdin or a descriptor."""

import sys
from pathlib import Path

from carpal.errors import refuse
from carpal.status import Reason
from vault.seal.descriptor import read_descriptor
from vault.seal.envelope import KEY_SIZE
from vault.seal.seals import Given

_SIZE_MAX = 4096


def handed_in(passphrase_file: Path | None, descriptor: int | None) -> Given:
    """Read once, so that one command may open the vault twice. CONFIG_INVALID."""
    if passphrase_file is not None:
        return Given(secret=read_secret(passphrase_file))
    if descriptor is not None:
        return Given(secret=read_descriptor(descriptor))
    return Given()


def read_secret(path: Path) -> bytes:
    """What a file holds, or standard input for `-`, without the end of its line."""
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(_SIZE_MAX + 1)
        else:
            with path.open("rb") as file:
                data = file.read(_SIZE_MAX + 1)
    except OSError as error:
        raise refuse(
            Reason.CONFIG_INVALID, f"{path}: {error.strerror}", action="make it readable"
        ) from None
    if len(data) > _SIZE_MAX:
        raise refuse(Reason.CONFIG_INVALID, f"{path} is too large for a secret")
    return data.removesuffix(b"\n").removesuffix(b"\r")


def read_key(path: Path) -> bytes:
    """A key of 32 bytes, as it is: its last byte may well be the end of a line."""
    try:
        if str(path) == "-":
            return sys.stdin.buffer.read(KEY_SIZE + 1)
        with path.open("rb") as file:
            return file.read(KEY_SIZE + 1)
    except OSError as error:
        raise refuse(
            Reason.CONFIG_INVALID, f"{path}: {error.strerror}", action="make it readable"
        ) from None
