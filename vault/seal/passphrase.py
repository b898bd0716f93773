"""A seal key from a passphrase: scrypt, its cost stored with the seal and bounded when read."""

import os
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from carpal.errors import refuse
from carpal.status import Reason
from vault.seal.envelope import KEY_SIZE
from vault.seal.kek import bad_key

LENGTH_MIN = 12
"""Characters of one that is chosen now."""
_SIZE_MAX = 1024
_N, _R, _P = 2**17, 8, 1
"""128 MiB, and half a second."""
_N_MIN, _N_MAX, _R_MAX, _P_MAX = 2**14, 2**20, 8, 4
"""1 GiB at most: whoever writes the database must not have our memory."""


def new_parameters() -> dict[str, Any]:
    """For a new passphrase."""
    return {"n": _N, "r": _R, "p": _P, "salt": os.urandom(16).hex()}


def check_new(passphrase: bytes) -> bytes:
    """One that is chosen now, or CONFIG_INVALID."""
    if len(passphrase) < LENGTH_MIN:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"a passphrase has {LENGTH_MIN} characters at least",
            action="choose a longer one: four words at random",
        )
    return passphrase


def derive(passphrase: bytes, parameters: Mapping[str, Any]) -> bytes:
    """The key; half a second of work. SEAL_KEY_WRONG for what can be none, VAULT_CORRUPT."""
    n, r, p = (parameters.get(name) for name in "nrp")
    try:
        salt = bytes.fromhex(parameters["salt"])
    except (KeyError, ValueError, TypeError):
        salt = b""
    if (
        not (isinstance(n, int) and isinstance(r, int) and isinstance(p, int))
        or not (_N_MIN <= n <= _N_MAX and n & (n - 1) == 0 and 1 <= r <= _R_MAX)
        or not (1 <= p <= _P_MAX and 16 <= len(salt) <= 64)
    ):
        raise refuse(Reason.VAULT_CORRUPT, "the seal's parameters are beyond what is allowed")
    if not passphrase:
        raise bad_key("the passphrase is empty")
    if len(passphrase) > _SIZE_MAX:
        raise refuse(Reason.SEAL_KEY_WRONG, "wrong passphrase")
    return Scrypt(salt=salt, length=KEY_SIZE, n=n, r=r, p=p).derive(passphrase)
