"""Marks of what is in the safe, and the manifest over all of them. Pure.

Each row has a mark, and the sum of all marks, with a count of changes, is signed: so that an older
row shows, and one that is missing.
"""

import hmac
from hashlib import sha256

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vault.seal.envelope import Place, bound

MODULUS = 2**256
"""Of the sum."""


def mark_key(term: bytes) -> bytes:
    """The key of marks and manifests that goes with a term."""
    return HKDF(hashes.SHA256(), 32, salt=None, info=b"carpal/v1/vault/marks").derive(term)


def mark_of(key: bytes, place: Place, generation: int, policy: bytes, blob: bytes | None) -> bytes:
    """Of one row: its place, generation, policy and what it holds."""
    content = b"" if blob is None else sha256(blob).digest()
    return hmac.new(
        key, bound(place.bound("vault/v1/mark", generation, policy), content), sha256
    ).digest()


def manifest_of(key: bytes, epoch: int, total: int, rows: int) -> str:
    """Of the whole: how many changes there were, the sum of marks, how many rows."""
    fields = (b"vault/v1/manifest", str(epoch).encode(), total.to_bytes(32), str(rows).encode())
    return hmac.new(key, bound(*fields), sha256).hexdigest()
