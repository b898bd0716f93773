"""The vault's own token for a secret manager, in a file that whoever renews it writes.

It is read for each fetch: a token that is replaced holds from the next one on.
"""

import os
import stat
from pathlib import Path

from carpal.errors import CarpalError
from vault.secret import MOST, Secret, storable
from vault.sources.source import Failure, SourceFailed


def read_token(path: Path) -> Secret:
    """The token. SourceFailed for a file that others can read or change, or that has none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _bad(f"the token's file: {error.strerror}") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise _bad("the token's file is no file")
        if found.st_uid not in (os.geteuid(), 0):
            raise _bad("the token's file is owned by another user than the vault's")
        if stat.S_IMODE(found.st_mode) & 0o027:
            raise _bad("the token's file is open to others: chmod 600")
        value = os.read(handle, MOST + 3).removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise _bad(f"the token's file: {error.strerror}") from None
    finally:
        os.close(handle)
    try:
        storable(value)
    except CarpalError:
        raise _bad("the token's file has no token") from None
    return Secret(value)


def _bad(detail: str) -> SourceFailed:
    return SourceFailed(Failure.REFUSED, detail)
