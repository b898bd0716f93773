"""Proofs that enrol, renew, welcome and revoke, and the token a person carries. Pure cryptography.

The token's secret is never sent: enrolling proves that it is known, by an HMAC
over the certificate request; renewing proves that the old key is still held.
"""

import base64
import binascii
import hmac
import json
import re
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.errors import CarpalError, refuse
from carpal.ids import check_id
from carpal.status import Reason

SECRET_BYTES = 32
PIN_BYTES = 32
TOKEN_PREFIX = "carpal1."  # noqa: S105 - a prefix, so that scanners and people know one on sight

_ENROL = b"carpal/v1/enrol"
_RENEW = b"carpal/v1/renew"
_DIAGNOSE = b"carpal/v1/diagnose"
_RETIRE = b"carpal/v1/retire"
_WELCOME = b"carpal/v1/welcome"
_REVOKE = b"carpal/v1/revoke"
NONCE_BYTES = range(16, 65)
"""How long a nonce may be."""
TOKEN_MAX = 8192
"""Characters of a token's line; one with ten pins has fewer than 1,000."""
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})\Z")


def enrol_proof(secret: bytes, token_id: str, csr_der: bytes) -> bytes:
    """HMAC-SHA256 under the token's secret over the token's id and the request (PKCS #10, DER)."""
    return hmac.digest(secret, _lp(_ENROL, token_id.encode(), csr_der), "sha256")


def renewal_signature(old_key: ec.EllipticCurvePrivateKey, csr_der: bytes) -> bytes:
    """ECDSA-SHA256 (DER) by the key of the certificate being renewed, over the new request."""
    return old_key.sign(_lp(_RENEW, csr_der), ec.ECDSA(hashes.SHA256()))


def check_renewal(certificate: x509.Certificate, csr_der: bytes, signature: bytes) -> bool:
    """Whether `signature` over `csr_der` is by the certificate's key."""
    return _signed_by(certificate, _lp(_RENEW, csr_der), signature)


def diagnosis_signature(key: ec.EllipticCurvePrivateKey, leaf_der: bytes, nonce: bytes) -> bytes:
    """ECDSA-SHA256 (DER) by a certificate's key: its holder asks why it is refused."""
    return key.sign(_lp(_DIAGNOSE, leaf_der, nonce), ec.ECDSA(hashes.SHA256()))


def check_diagnosis(certificate: x509.Certificate, nonce: bytes, signature: bytes) -> bool:
    """Whether its holder asks."""
    return _asked(_DIAGNOSE, certificate, nonce, signature)


def retirement_signature(key: ec.EllipticCurvePrivateKey, leaf_der: bytes, nonce: bytes) -> bytes:
    """ECDSA-SHA256 (DER) by a certificate's key: its holder wants it revoked."""
    return key.sign(_lp(_RETIRE, leaf_der, nonce), ec.ECDSA(hashes.SHA256()))


def check_retirement(certificate: x509.Certificate, nonce: bytes, signature: bytes) -> bool:
    """Whether its holder wants that."""
    return _asked(_RETIRE, certificate, nonce, signature)


def welcome_signature(key: ec.EllipticCurvePrivateKey, nonce: bytes, daemon: str) -> bytes:
    """ECDSA-SHA256 (DER) by a brain's key: it is the one that welcomes `daemon`, a URI, now."""
    return key.sign(_lp(_WELCOME, nonce, daemon.encode()), ec.ECDSA(hashes.SHA256()))


def check_welcome(
    certificate: x509.Certificate, nonce: bytes, daemon: str, signature: bytes
) -> bool:
    """Whether whoever welcomes `daemon` holds the certificate's key; `nonce` is of its hello."""
    return len(nonce) in NONCE_BYTES and _signed_by(
        certificate, _lp(_WELCOME, nonce, daemon.encode()), signature
    )


def revocation_signature(key: ec.EllipticCurvePrivateKey, identity: str, before: int) -> bytes:
    """ECDSA-SHA256 (DER) by a CA's key: what `identity` was issued until a second is revoked.

    It begins with 0x00, a certificate with 0x30, a list of revocations with 0x08.
    """
    return key.sign(_revocation(identity, before), ec.ECDSA(hashes.SHA256()))


def check_revocation(ca: bytes, identity: str, before: int, signature: bytes) -> bool:
    """Whether one of the CAs in PEM `ca` signed that revocation."""
    authorities = x509.load_pem_x509_certificates(ca)
    message = _revocation(identity, before)
    return any(_signed_by(authority, message, signature) for authority in authorities)


def _revocation(identity: str, before: int) -> bytes:
    return _lp(_REVOKE, identity.encode(), b"%d" % before)


def _asked(what: bytes, certificate: x509.Certificate, nonce: bytes, signature: bytes) -> bool:
    leaf_der = certificate.public_bytes(serialization.Encoding.DER)
    return len(nonce) in NONCE_BYTES and _signed_by(
        certificate, _lp(what, leaf_der, nonce), signature
    )


def _signed_by(certificate: x509.Certificate, message: bytes, signature: bytes) -> bool:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def ca_pin(certificate_der: bytes) -> bytes:
    """SHA-256 of a CA certificate, as a token pins it."""
    return sha256(certificate_der).digest()


@dataclass(frozen=True, slots=True)
class Token:
    """What one machine needs to enrol once: where, whom to trust, and a secret."""

    address: str
    """The enrolment port, `host:port`."""
    pins: tuple[bytes, ...]
    """`ca_pin` of each CA that may stand behind the address."""
    token_id: str
    secret: bytes = field(repr=False)

    def text(self) -> str:
        """The one line a person carries. It holds the secret: never log it."""
        body = {
            "a": self.address,
            "p": [base64.b64encode(pin).decode() for pin in self.pins],
            "i": self.token_id,
            "s": base64.b64encode(self.secret).decode(),
        }
        packed = json.dumps(body, separators=(",", ":")).encode()
        return TOKEN_PREFIX + base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def parse_token(text: str) -> Token:
    """The token in one line of text; whitespace around it is ignored.

    Raises TOKEN_MALFORMED; its message never holds any of the text. Members a
    newer token may add are skipped.
    """
    line = text.strip()
    if not line:
        raise _malformed("it is empty")
    if not line.startswith(TOKEN_PREFIX):
        raise _malformed(f"it does not start with {TOKEN_PREFIX!r}")
    if len(line) > TOKEN_MAX:
        raise _malformed("it is too long")
    packed = line.removeprefix(TOKEN_PREFIX)
    try:
        padded = packed + "=" * (-len(packed) % 4)
        body = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        raise _malformed("part of it is missing or changed") from None
    if not isinstance(body, dict):
        raise _malformed("part of it is missing or changed")
    pins = body.get("p")
    if not isinstance(pins, list) or not 1 <= len(pins) <= 16:
        raise _malformed("it pins no certificate authority")
    return Token(
        address=_address(_text(body, "a")),
        pins=tuple(_bytes(pin, PIN_BYTES) for pin in pins),
        token_id=_token_id(_text(body, "i")),
        secret=_bytes(_text(body, "s"), SECRET_BYTES),
    )


def _text(body: dict[str, object], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise _malformed("part of it is missing or changed")
    return value


def _address(value: str) -> str:
    match = _ADDRESS.match(value)
    if match is None or not 0 < int(match.group(2)) < 65536:
        raise _malformed("its address is not host:port")
    return value


def _token_id(value: str) -> str:
    try:
        return check_id(value, "token_id")
    except CarpalError:
        raise _malformed("its id is not valid") from None


def _bytes(value: object, size: int) -> bytes:
    try:
        raw = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != size:
        raise _malformed("part of it is missing or changed")
    return raw


def _lp(*parts: bytes) -> bytes:
    """Each part behind its u32 length, so that no two lists of parts have the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _malformed(why: str) -> CarpalError:
    return refuse(Reason.TOKEN_MALFORMED, f"this is not an enrolment token: {why}")
