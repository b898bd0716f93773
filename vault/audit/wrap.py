"""How the audit's key is sealed: by a key of its own in the safe, and in the audit's own database.

So the audit's key is replaced day by day without a change of the safe.
"""

import os

from carpal.errors import refuse
from carpal.status import Reason
from vault.database import RESTORE
from vault.safe.safe import Safe
from vault.seal.envelope import NONCE_SIZE, NotSealedSo, Place, bound, policy_hash, seal, unseal

_USE = policy_hash(b"audit")
_WRAP = Place("audit", "", "", "wrap", "key")
_FINGERPRINT = Place("audit", "", "", "fingerprint", "key")


def make_audit_keys(safe: Safe) -> None:
    """The key that seals the audit's, and that of fingerprints. In a transaction."""
    for place in (_WRAP, _FINGERPRINT):
        safe.put(place, _USE, os.urandom(32))


class AuditWrap:
    """A `vault.audit.keys.Wrap`."""

    def __init__(self, safe: Safe) -> None:
        """VAULT_CORRUPT when the safe has no key for it."""
        self._key = _read(safe, _WRAP)

    def seal(self, number: int, key: bytes) -> bytes:
        """As `Wrap`."""
        return seal(self._key, 0, os.urandom(NONCE_SIZE), _bound(number), key)

    def open(self, number: int, sealed: bytes) -> bytes:
        """As `Wrap`. VAULT_CORRUPT."""
        try:
            return unseal(self._key, _bound(number), sealed)
        except NotSealedSo as error:
            raise refuse(
                Reason.VAULT_CORRUPT, f"the audit's key does not open: {error}", action=RESTORE
            ) from None


def fingerprint_key(safe: Safe) -> bytes:
    """Of the fingerprints by which secrets are told apart in the audit; the same for good."""
    return _read(safe, _FINGERPRINT)


def _read(safe: Safe, place: Place) -> bytes:
    key = safe.get(place, _USE)
    if key is None:
        raise refuse(Reason.VAULT_CORRUPT, "the safe has no key for the audit", action=RESTORE)
    return key


def _bound(number: int) -> bytes:
    return bound(b"vault/v1/audit-key", str(number).encode())
