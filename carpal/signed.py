"""Bytes signed by a process: a lease ticket or a log's head by sessiond, revocations by a CA.

A signature covers the payload alone, as types.proto says. What it means follows
from the signer's role, which is why `verify` asks for one. A CA's own key signs
certificates, which begin with 0x30, and lists of revocations, which begin with
0x08: nobody can take the one for the other.
"""

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.message import DecodeError

from carpal.errors import refuse
from carpal.identity import Identity, Role, verified_identity
from carpal.status import Reason
from carpal.v1 import types_pb2

_LAST = 7_258_118_400
"""The year 2200, in seconds since 1970."""


def sign(key: ec.EllipticCurvePrivateKey, chain: bytes, payload: bytes) -> types_pb2.SignedBytes:
    """`payload` signed by `key`, whose certificate is the first of the PEM `chain`."""
    return types_pb2.SignedBytes(
        payload=payload,
        signature=key.sign(payload, ec.ECDSA(hashes.SHA256())),
        certificate_chain=chain,
    )


def verify(signed: types_pb2.SignedBytes, ca: bytes, role: Role, now: datetime) -> Identity:
    """The signer, once its certificate chains to the PEM `ca` and is of `role`.

    Raises IDENTITY_INVALID; the payload is to be read only after this returned.
    """
    identity = verified_identity(signed.certificate_chain, ca, now)
    if identity.role is not role:
        raise refuse(Reason.IDENTITY_INVALID, f"signed by a {identity.role}, not a {role}")
    _check(signed, x509.load_pem_x509_certificate(signed.certificate_chain), identity.uri)
    return identity


def verify_by_ca(signed: types_pb2.SignedBytes, ca: bytes) -> None:
    """IDENTITY_INVALID unless the key of one of the CAs in PEM `ca` signed it.

    There is no date in it: a CA is trusted for as long as it is in `ca`.
    """
    try:
        signer = x509.load_pem_x509_certificate(signed.certificate_chain)
    except ValueError:
        raise refuse(Reason.IDENTITY_INVALID, "the signer is not a certificate") from None
    if signer not in x509.load_pem_x509_certificates(ca):
        raise refuse(Reason.IDENTITY_INVALID, "the signer is no authority that is trusted here")
    _check(signed, signer, "that authority")


def _check(signed: types_pb2.SignedBytes, signer: x509.Certificate, name: str) -> None:
    key = signer.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(signed.signature, signed.payload, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise refuse(Reason.IDENTITY_INVALID, f"the signature is not by {name}") from None


def verify_head(signed: types_pb2.SignedBytes, ca: bytes) -> tuple[types_pb2.SignedHead, Identity]:
    """The head of a log, and the sessiond that signed it. Raises IDENTITY_INVALID.

    It proves something for as long as somebody asks, so the certificate is held
    to the time that the head says, not to now: whoever had its key, then or
    later, could have signed with that time.
    """
    try:
        head = types_pb2.SignedHead.FromString(signed.payload)
    except DecodeError:
        raise refuse(Reason.IDENTITY_INVALID, "what is signed is not a log's head") from None
    if not 0 <= head.time.seconds < _LAST:
        raise refuse(Reason.IDENTITY_INVALID, "the head was signed at no time that there is")
    return head, verify(signed, ca, Role.SESSIOND, head.time.ToDatetime(tzinfo=UTC))
