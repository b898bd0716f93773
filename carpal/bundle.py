"""Which authorities to trust from now on, when the vault's are replaced.

What a vault says of its CAs may come through a brain, which may have been taken
over. So a CA that is new here is trusted only if one that is trusted already
signed it: its cross-certificate. The same certificate, shown in the chain of
whoever has a leaf of the new CA, lets TLS itself find the way from the old root,
so that one who slept through the change gets in, and learns of it. Pure.
"""

from contextlib import suppress

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization


def trusted(bundle: bytes, crosses: bytes, held: bytes) -> bytes:
    """The CAs to trust from now on, PEM: those of `bundle` that are held, or vouched for.

    All three are PEM; `crosses` are cross-certificates. What is held and not in
    `bundle` is dropped; if nothing of it could be trusted, `held` stays as it is.
    """
    told, vouchers, known = (_certificates(pem) for pem in (bundle, crosses, held))
    accepted = [one for one in told if one in known]
    while True:
        issuers = [*known, *accepted]
        news = [
            one for one in told if one not in accepted and _is_vouched_for(one, vouchers, issuers)
        ]
        if not news:
            break
        accepted += news
    if not accepted or set(accepted) == set(known):
        return held
    return b"".join(_pem(one) for one in told if one in accepted)


def is_by_newest(chain: bytes, bundle: bytes) -> bool:
    """Whether the leaf, the first of the PEM `chain`, is by the first of `bundle`: who signs now.

    Also true where that cannot be told: nothing is to be done about it.
    """
    leaves, roots = _certificates(chain), _certificates(bundle)
    return not (leaves and roots) or _issued(leaves[0], roots[0])


def key_ids(bundle: bytes) -> frozenset[str]:
    """The keys of the CAs in a PEM bundle, as `Identity.authority` names them."""
    kind = x509.SubjectKeyIdentifier
    found = []
    for root in _certificates(bundle):
        with suppress(x509.ExtensionNotFound):
            found.append(root.extensions.get_extension_for_class(kind).value.digest.hex())
    return frozenset(found)


def _is_vouched_for(
    root: x509.Certificate,
    crosses: list[x509.Certificate],
    issuers: list[x509.Certificate],
) -> bool:
    """Whether one of `issuers` signed a certificate for this very CA, and it is one."""
    if not _issued(root, root):
        return False
    return any(
        cross.subject == root.subject
        and cross.public_key() == root.public_key()
        and _is_authority(cross)
        and any(_issued(cross, issuer) for issuer in issuers)
        for cross in crosses
    )


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return _is_authority(issuer)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
