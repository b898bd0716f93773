"""A certificate holds what the vault decided, whatever the request said."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from carpal.errors import BadInput, CarpalError
from carpal.identity import Role, identity_in
from carpal.status import Reason
from carpal.tls import certificate_request, new_key
from vault.authority import ca

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
AUTHORITY = ca.new_authority(new_key(), "x.example", NOW)


def leaf(claims: ca.Claims) -> x509.Certificate:
    return ca.issue(
        AUTHORITY,
        claims,
        public_key=new_key().public_key(),
        not_before=NOW,
        not_after=NOW + timedelta(hours=24),
    )


def test_the_ca_signs_leaves_and_the_ca_after_it_and_nothing_else() -> None:
    constraints = AUTHORITY.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = AUTHORITY.certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 1)
    assert usage.key_cert_sign
    assert not usage.digital_signature
    assert AUTHORITY.trust_domain == "x.example"


def test_a_leaf_is_a_client_and_a_server_and_no_ca() -> None:
    certificate = leaf(ca.Claims(Role.DAEMON, "d1", "acme", "gpu"))
    extensions = certificate.extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.SERVER_AUTH,
    ]
    identity = identity_in(certificate)
    assert identity.uri == "spiffe://x.example/daemon/d1"
    assert (identity.workspace, identity.pool) == ("acme", "gpu")
    assert identity.not_after - identity.not_before == timedelta(hours=24)


def test_serials_differ() -> None:
    claims = ca.Claims(Role.BRAIN, "b")
    assert len({leaf(claims).serial_number for _ in range(20)}) == 20


def test_a_leaf_does_not_outlive_its_ca() -> None:
    certificate = ca.issue(
        AUTHORITY,
        ca.Claims(Role.BRAIN, "b"),
        public_key=new_key().public_key(),
        not_before=NOW,
        not_after=NOW + timedelta(days=20_000),
    )
    assert certificate.not_valid_after_utc == AUTHORITY.certificate.not_valid_after_utc


@pytest.mark.parametrize(
    "claims",
    [
        ca.Claims(Role.DAEMON, "d1"),
        ca.Claims(Role.BRAIN, "b", "acme"),
        ca.Claims(Role.OPERATOR, "o", "acme", "gpu"),
        ca.Claims(Role.BRAIN, "b/../c"),
        ca.Claims(Role.BRAIN, ""),
    ],
    ids=str,
)
def test_claims_that_cannot_stand_together_are_not_signed(claims: ca.Claims) -> None:
    with pytest.raises(CarpalError) as raised:
        leaf(claims)
    assert raised.value.reason is Reason.IDENTITY_INVALID


def test_only_the_key_is_taken_from_a_request() -> None:
    key = new_key()
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    assert ca.requested_key(request.public_bytes(Encoding.DER)) == key.public_key()


def weak_curve() -> bytes:
    return certificate_request(ec.generate_private_key(ec.SECP224R1()))


def rsa_key() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def tampered() -> bytes:
    request = bytearray(certificate_request(new_key()))
    request[-1] ^= 1
    return bytes(request)


def unknown_version() -> bytes:
    return certificate_request(new_key()).replace(b"\x02\x01\x00", b"\x02\x01\x07", 1)


@pytest.mark.parametrize(
    "request_der",
    [
        b"",
        b"junk",
        weak_curve(),
        rsa_key(),
        tampered(),
        unknown_version(),
        bytes(ca.REQUEST_MAX + 1),
    ],
    ids=["empty", "junk", "weak curve", "RSA", "tampered", "unknown version", "huge"],
)
def test_a_bad_request_is_an_invalid_field(request_der: bytes) -> None:
    with pytest.raises(BadInput, match="certificate_request"):
        ca.requested_key(request_der)
