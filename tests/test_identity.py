"""Only exactly the right certificate says who someone is."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from carpal.errors import Denied
from carpal.identity import (
    Identity,
    Role,
    identity_in,
    identity_of,
    server_name,
    verified_identity,
)
from carpal.status import Reason
from carpal.tls import new_key
from tests.pki import Pki
from vault.authority import ca

NOW = datetime.now(UTC)
URI = "spiffe://carpal.internal/daemon/d1"
DNS = "daemon.carpal.internal"


def certificate(
    uris: Sequence[str] = (URI,),
    dns: Sequence[str] = (DNS,),
    subject: Sequence[tuple[x509.ObjectIdentifier, str]] = (
        (NameOID.COMMON_NAME, "d1"),
        (NameOID.ORGANIZATION_NAME, "default"),
    ),
) -> x509.Certificate:
    """A self-signed certificate with any claims at all."""
    key = new_key()
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
    names += [x509.DNSName(name) for name in dns]
    subject_name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject_name)
        .issuer_name(subject_name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(hours=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256())


def test_a_daemon_certificate_says_name_workspace_and_pool(tmp_path: Path) -> None:
    files = Pki(tmp_path).issue("daemon", "build-1", "acme", "gpu")
    identity = identity_of(files.certificate.read_bytes())
    assert (identity.role, identity.name) == (Role.DAEMON, "build-1")
    assert (identity.workspace, identity.pool) == ("acme", "gpu")
    assert identity.uri == "spiffe://carpal.internal/daemon/build-1"


@pytest.mark.parametrize("role", [Role.SESSIOND, Role.VAULT, Role.BRAIN])
def test_a_server_role_has_no_workspace(tmp_path: Path, role: Role) -> None:
    assert Pki(tmp_path).issue(role, "one").identity().workspace == ""


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(certificate(uris=()), id="no URI"),
        pytest.param(certificate(uris=(), dns=()), id="no names at all"),
        pytest.param(certificate(uris=(URI, URI)), id="two URIs"),
        pytest.param(certificate(uris=("https://carpal.internal/daemon/d1",)), id="not spiffe"),
        pytest.param(certificate(uris=("spiffe://carpal.internal/daemon/d1/x",)), id="long path"),
        pytest.param(certificate(uris=("spiffe://carpal.internal/daemon/",)), id="no name"),
        pytest.param(certificate(uris=("spiffe://carpal.internal/admin/d1",)), id="unknown role"),
        pytest.param(certificate(uris=("spiffe://carpal.internal/daemon/D1",)), id="bad name"),
        pytest.param(
            certificate(uris=("spiffe://Carpal/daemon/d1",), dns=("daemon.Carpal",)),
            id="bad domain",
        ),
        pytest.param(certificate(dns=()), id="no DNS name"),
        pytest.param(certificate(dns=(DNS, "brain.carpal.internal")), id="a second role's name"),
        pytest.param(certificate(dns=("brain.carpal.internal",)), id="another role's DNS name"),
        pytest.param(certificate(subject=()), id="no subject"),
        pytest.param(
            certificate(
                subject=((NameOID.COMMON_NAME, "d2"), (NameOID.ORGANIZATION_NAME, "default"))
            ),
            id="another common name",
        ),
        pytest.param(
            certificate(subject=((NameOID.COMMON_NAME, "d1"),)), id="daemon without workspace"
        ),
        pytest.param(
            certificate(
                subject=(
                    (NameOID.COMMON_NAME, "d1"),
                    (NameOID.ORGANIZATION_NAME, "default"),
                    (NameOID.ORGANIZATION_NAME, "other"),
                )
            ),
            id="two workspaces",
        ),
        pytest.param(
            certificate(
                uris=("spiffe://carpal.internal/brain/d1",), dns=("brain.carpal.internal",)
            ),
            id="brain with a workspace",
        ),
    ],
)
def test_a_certificate_that_says_anything_else_is_refused(bad: x509.Certificate) -> None:
    with pytest.raises(Denied) as raised:
        identity_in(bad)
    assert raised.value.reason is Reason.IDENTITY_INVALID


@pytest.mark.parametrize("junk", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n", b"\xff\x00"])
def test_what_is_no_certificate_is_refused(junk: bytes) -> None:
    with pytest.raises(Denied):
        identity_of(junk)


def test_dates_are_judged_at_the_edge() -> None:
    identity = Identity("td", Role.BRAIN, "b", "", "", NOW, NOW + timedelta(hours=1), 1)
    assert identity.not_yet_valid(NOW - timedelta(seconds=1))
    assert not identity.not_yet_valid(NOW)
    assert not identity.expired(NOW + timedelta(minutes=59))
    assert identity.expired(NOW + timedelta(hours=1))


def test_a_chain_is_verified_against_its_own_ca_only(tmp_path: Path) -> None:
    ours, theirs = Pki(tmp_path / "ours"), Pki(tmp_path / "theirs")
    chain = ours.issue("brain", "b").certificate.read_bytes()
    assert verified_identity(chain, ours.ca_pem, datetime.now(UTC)).name == "b"
    assert verified_identity(chain, theirs.ca_pem + ours.ca_pem, datetime.now(UTC)).name == "b"
    with pytest.raises(Denied):
        verified_identity(chain, theirs.ca_pem, datetime.now(UTC))


class Forger(ca.Authority):
    """A leaf that plays CA."""

    trust_domain = "carpal.internal"


def test_a_leaf_cannot_sign_another_leaf(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    brain = pki.issue("brain", "b").load()
    leaf = x509.load_pem_x509_certificate(brain.chain)
    key = new_key()
    forged = ca.issue(
        Forger(brain.key, leaf),
        ca.Claims(Role.OPERATOR, "mallory", "default"),
        public_key=key.public_key(),
        not_before=NOW,
        not_after=NOW + timedelta(hours=1),
    )
    with pytest.raises(Denied):
        verified_identity(ca.pem(forged) + brain.chain, pki.ca_pem, datetime.now(UTC))


def test_an_expired_chain_is_refused(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    past = NOW - timedelta(days=3)
    files = pki.issue("brain", "b", not_before=past, not_after=past + timedelta(days=1))
    chain = files.certificate.read_bytes()
    with pytest.raises(Denied):
        verified_identity(chain, pki.ca_pem, datetime.now(UTC))


def test_a_client_asks_for_a_role_by_name() -> None:
    assert server_name(Role.BRAIN, "x.example") == "brain.x.example"
    assert server_name("vault", "x.example") == "vault.x.example"
    with pytest.raises(ValueError, match="admin"):
        server_name("admin", "x.example")
