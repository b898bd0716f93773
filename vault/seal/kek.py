"""The key that seals: 32 bytes that nobody could guess, and how it is told from another."""

import hmac
import os
from hashlib import sha256

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.seal.envelope import KEY_SIZE, NONCE_SIZE, NotSealedSo, bound, seal, unseal

_CANARY = b"carpal/v1/vault/canary"


def new_kek() -> bytes:
    """One that nobody had before."""
    return os.urandom(KEY_SIZE)


def check_kek(key: bytes, where: str) -> bytes:
    """`key`, or CONFIG_INVALID: a missing, empty, short or long key, or one that says nothing."""
    if not key:
        raise bad_key(f"{where} is empty")
    if len(key) != KEY_SIZE:
        raise bad_key(f"{where} has {len(key)} bytes; a seal key has {KEY_SIZE}")
    if len(set(key)) < 8:  # by chance once in 10**40
        raise bad_key(f"{where} is no random key: its bytes repeat")
    return key


def key_id(key: bytes) -> str:
    """Which key it is, without saying anything of it."""
    return sha256(b"carpal/v1/vault/seal\0" + key).hexdigest()[:16]


def canary(key: bytes) -> bytes:
    """Kept beside what a key seals, to tell a wrong key from damage."""
    return seal(key, 0, os.urandom(NONCE_SIZE), bound(_CANARY, key_id(key).encode()), _CANARY)


def check_canary(key: bytes, expected_id: str, blob: bytes) -> None:
    """SEAL_KEY_WRONG when it is another key than the canary's."""
    try:
        found = unseal(key, bound(_CANARY, expected_id.encode()), blob)
    except NotSealedSo:
        found = b""
    if not hmac.compare_digest(found, _CANARY):
        if hmac.compare_digest(key_id(key), expected_id):
            raise refuse(
                Reason.VAULT_CORRUPT, "the seal key is the right one, and its canary is damaged"
            )
        raise refuse(
            Reason.SEAL_KEY_WRONG,
            f"wrong seal key: this vault is sealed by {expected_id}, and this key is {key_id(key)}",
        )


def bad_key(problem: str) -> CarpalError:
    """A key, or where it should be, that is not good."""
    return refuse(
        Reason.CONFIG_INVALID,
        f"the seal key cannot be used: {problem}",
        action="put back the key that this vault was sealed by; no other opens it",
    )
