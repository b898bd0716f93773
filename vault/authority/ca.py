"""The certificate authority, pure: what goes into a certificate, and what a request may ask.

Names come from a token or from the certificate being renewed, never from the
request: only the key is taken from that. The clock is the caller's.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from carpal.errors import invalid
from carpal.identity import (
    BACKDATE,
    Role,
    check_claims,
    check_trust_domain,
    identity_uri,
    server_name,
)

CA_LIFETIME = timedelta(days=3650)
"""Ten years."""
LEAF_LIFETIME = timedelta(hours=24)
"""Renewed at half of it, so there are 12 hours to bring a vault back."""
REQUEST_MAX = 16 * 1024
"""Bytes of a certificate request; one of ours has about 200."""

_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


@dataclass(frozen=True, slots=True)
class Authority:
    """The signing CA of one trust domain."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """Its certificate; what everyone trusts."""
        return pem(self.certificate)

    @property
    def der(self) -> bytes:
        """Its certificate, DER; what tokens pin."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def trust_domain(self) -> str:
        """The domain it signs for: the host of its URI name."""
        return trust_domain_of(self.certificate)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a leaf says of its holder; see `carpal.identity`."""

    role: Role
    name: str
    workspace: str = ""
    pool: str = ""

    def uri(self, trust_domain: str) -> str:
        """The SPIFFE URI of the holder."""
        return identity_uri(trust_domain, self.role, self.name)


def new_authority(key: ec.EllipticCurvePrivateKey, trust_domain: str, now: datetime) -> Authority:
    """A self-signed CA that may sign leaves, and the CA that comes after it."""
    check_trust_domain(trust_domain)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = x509.Name(
        [
            # Of its own, so that TLS does not take one CA of a domain for another.
            x509.NameAttribute(NameOID.COMMON_NAME, f"Carpal CA {identifier.digest.hex()[:8]}"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, trust_domain[:64]),
        ]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.UniformResourceIdentifier(f"spiffe://{trust_domain}")]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def cross_sign(by: Authority, other: x509.Certificate, now: datetime) -> x509.Certificate:
    """Another CA's name and key, vouched for by `by`: whoever trusts `by` may trust that CA.

    That CA may sign leaves alone by it.
    """
    names = other.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        x509.CertificateBuilder()
        .subject_name(other.subject)
        .issuer_name(by.certificate.subject)
        .public_key(other.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(by.certificate.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(_identifier(other), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                _identifier(by.certificate)
            ),
            critical=False,
        )
        .add_extension(names, critical=False)
        .sign(by.key, hashes.SHA256())
    )


def trust_domain_of(certificate: x509.Certificate) -> str:
    """The domain a CA signs for."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    (uri,) = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    return uri.removeprefix("spiffe://")


def key_id(certificate: x509.Certificate) -> str:
    """A CA by its key, in hex: its subject key identifier."""
    return _identifier(certificate).digest.hex()


def _identifier(certificate: x509.Certificate) -> x509.SubjectKeyIdentifier:
    return certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value


def issue(
    authority: Authority,
    claims: Claims,
    *,
    public_key: ec.EllipticCurvePublicKey,
    not_before: datetime,
    not_after: datetime,
) -> x509.Certificate:
    """A leaf for `public_key`, of exactly the shape `carpal.identity` reads.

    Raises IDENTITY_INVALID when the claims may not stand together.
    """
    domain = authority.trust_domain
    check_claims(domain, claims.role, claims.name, claims.workspace, claims.pool)
    subject = [
        x509.NameAttribute(oid, value)
        for oid, value in (
            (NameOID.COMMON_NAME, claims.name),
            (NameOID.ORGANIZATION_NAME, claims.workspace),
            (NameOID.ORGANIZATIONAL_UNIT_NAME, claims.pool),
        )
        if value
    ]
    issuer_identifier = _identifier(authority.certificate)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(authority.certificate.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(min(not_after, authority.certificate.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            ),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_identifier),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.UniformResourceIdentifier(claims.uri(domain)),
                    x509.DNSName(server_name(claims.role, domain)),
                ]
            ),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )


def requested_key(csr_der: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a PKCS #10 request, once its holder signed it.

    Raises INVALID_FIELD; whatever else the request says is not read.
    """
    field = "certificate_request"
    if len(csr_der) > REQUEST_MAX:
        raise invalid(field, f"is larger than {REQUEST_MAX} bytes")
    try:
        request = x509.load_der_x509_csr(csr_der)
        key = request.public_key()
        signed = request.is_signature_valid
    except (ValueError, x509.InvalidVersion, UnsupportedAlgorithm, InvalidSignature):
        raise invalid(field, "is not a PKCS #10 request") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, _CURVES):
        raise invalid(field, "its key must be on P-256, P-384 or P-521")
    if not signed:
        raise invalid(field, "is not signed by its own key")
    return key


def pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def der(certificate: x509.Certificate) -> bytes:
    """A certificate as DER."""
    return certificate.public_bytes(serialization.Encoding.DER)


def chain_pem(authority: Authority, leaf: x509.Certificate) -> bytes:
    """Leaf, then CA: a server shows both, so that a machine that enrols can find its pin."""
    return pem(leaf) + authority.pem


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
