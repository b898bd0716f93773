"""The private keys of the CAs, in the safe: by the CA they are of, whatever its file is named."""

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.errors import refuse
from carpal.status import Reason
from vault.authority.ca import Authority, key_id
from vault.database import RESTORE
from vault.safe.safe import Safe
from vault.seal.envelope import Place, policy_hash

_KIND = "ca"
_USE = policy_hash(b"sign")


def put(safe: Safe, authority: Authority) -> None:
    """Keep a CA's key. In a transaction."""
    der = authority.key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    safe.put(_place(authority.certificate), _USE, der)


def load(safe: Safe, certificate: x509.Certificate) -> Authority:
    """A CA with its key. VAULT_CORRUPT when the safe has none that fits."""
    der = safe.get(_place(certificate), _USE)
    if der is None:
        raise refuse(
            Reason.VAULT_CORRUPT,
            f"the safe has no key for the CA {key_id(certificate)[:8]}",
            action=RESTORE,
        )
    key = serialization.load_der_private_key(der, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        certificate.public_key() != key.public_key()
    ):
        raise refuse(
            Reason.VAULT_CORRUPT,
            f"the key in the safe is not that of the CA {key_id(certificate)[:8]}",
            action=RESTORE,
        )
    return Authority(key, certificate)


def holds(safe: Safe, certificate: x509.Certificate) -> bool:
    """Whether a CA's key is there."""
    return safe.holds(_place(certificate))


def destroy_others(safe: Safe, kept: x509.Certificate) -> None:
    """Destroy the keys of all CAs but one. In a transaction."""
    for place, _, held in safe.places(_KIND):
        if held and place.id != key_id(kept):
            safe.shred(place)


def _place(certificate: x509.Certificate) -> Place:
    return Place(_KIND, "", "", key_id(certificate), "key")
