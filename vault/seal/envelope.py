"""A sealed value: its bytes, and what they are bound to. Pure.

    AVC1 | algorithm u8 | term u32 | nonce 12 | ciphertext and tag

AES-256-GCM. What it is bound to are fields behind their lengths, so that no two are alike; with
them the header. So nothing opens in another's place, in another version, or by another policy.
"""

import struct
from dataclasses import dataclass
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"AVC1"
AES_256_GCM = 1
NONCE_SIZE = 12
KEY_SIZE = 32
_TAG = 16
_HEADER = struct.Struct(">4sBI")
_PREFIX = _HEADER.size + NONCE_SIZE
_length = struct.Struct(">I").pack


class NotSealedSo(Exception):
    """It is not what was sealed here by this key: changed, moved, of another version, or none."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a sealed value is, and where it belongs."""

    kind: str
    """`credential`, `ca`, `token`, …"""
    workspace: str
    vault_id: str
    id: str
    field: str

    def bound(self, purpose: str, generation: int, policy: bytes) -> bytes:
        """What a value, or the key of one, is bound to; `policy` is a `policy_hash`."""
        return bound(
            purpose.encode(),
            self.kind.encode(),
            self.workspace.encode(),
            self.vault_id.encode(),
            self.id.encode(),
            self.field.encode(),
            str(generation).encode(),
            policy,
        )


def policy_hash(*policy: bytes) -> bytes:
    """Of what a value may be used for: who changes that in the database opens it no more."""
    return sha256(bound(b"vault/v1/policy", *policy)).digest()


def bound(*fields: bytes) -> bytes:
    """Fields, each behind its length: no two lists of fields give the same bytes."""
    return b"".join(_length(len(field)) + field for field in fields)


def seal(key: bytes, term: int, nonce: bytes, to: bytes, plain: bytes) -> bytes:
    """Seal under a key, to which `nonce` must be new. `term` says which key, 0 where `to` does."""
    if len(key) != KEY_SIZE or len(nonce) != NONCE_SIZE:
        raise ValueError("a key has 32 bytes and a nonce 12")
    header = _HEADER.pack(MAGIC, AES_256_GCM, term)
    return header + nonce + AESGCM(key).encrypt(nonce, plain, bound(header, to))


def term_of(blob: bytes) -> int:
    """Which key sealed it. Raises NotSealedSo for what is none, or of a format we do not know."""
    if len(blob) < _PREFIX + _TAG:
        raise NotSealedSo("it is cut short")
    magic, algorithm, term = _HEADER.unpack_from(blob)
    if magic != MAGIC or algorithm != AES_256_GCM:
        raise NotSealedSo("it is of no format that is known here")
    return int(term)


def unseal(key: bytes, to: bytes, blob: bytes) -> bytes:
    """What was sealed. Raises NotSealedSo."""
    term_of(blob)
    header, nonce = blob[: _HEADER.size], blob[_HEADER.size : _PREFIX]
    try:
        return AESGCM(key).decrypt(nonce, blob[_PREFIX:], bound(header, to))
    except InvalidTag:
        raise NotSealedSo("it was changed, or belongs elsewhere") from None
