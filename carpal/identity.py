"""Who a certificate says is calling.

A certificate carries one URI SAN, `spiffe://<trust-domain>/<role>/<name>`, one
DNS SAN, `<role>.<trust-domain>`, and in its subject CN=name, O=workspace and
OU=pool. Roles that serve every workspace have neither O nor OU.
"""

import logging
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from carpal.errors import CarpalError, invalid, refuse
from carpal.ids import check_name
from carpal.status import Reason

_log = logging.getLogger(__name__)

DEFAULT_TRUST_DOMAIN = "carpal.internal"

BACKDATE = timedelta(minutes=5)
"""A certificate is valid from this long before it is issued: clocks of the machines we
serve are often a little behind."""

_TRUST_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,126}[a-z0-9])?\Z")
_URI = re.compile(r"spiffe://([^/]+)/([^/]+)/([^/]+)\Z")


class Role(StrEnum):
    """What a process is; decides which methods it may call."""

    SESSIOND = "sessiond"
    VAULT = "vault"
    BRAIN = "brain"
    DAEMON = "daemon"
    OPERATOR = "operator"

    @property
    def has_workspace(self) -> bool:
        """Whether it belongs to one workspace; the others serve them all."""
        return self in (Role.DAEMON, Role.OPERATOR)


@dataclass(frozen=True)
class Identity:
    """A certificate's claims. `workspace` and `pool` are empty where there is none."""

    trust_domain: str
    role: Role
    name: str
    workspace: str
    pool: str
    not_before: datetime
    not_after: datetime
    serial: int
    authority: str = ""
    """Which CA's key signed it, in hex; empty when it does not say so."""

    @cached_property
    def uri(self) -> str:
        """The SPIFFE URI: the one name for this identity, in logs and on the wire."""
        return identity_uri(self.trust_domain, self.role, self.name)

    @property
    def issued(self) -> datetime:
        """When the vault issued it, to the second."""
        return self.not_before + BACKDATE

    def expired(self, now: datetime) -> bool:
        """Whether its time is over at `now`, an aware datetime."""
        return now >= self.not_after

    def not_yet_valid(self, now: datetime) -> bool:
        """Whether its time has not begun at `now`: usually a wrong clock."""
        return now < self.not_before


def identity_uri(trust_domain: str, role: Role, name: str) -> str:
    """`spiffe://<trust-domain>/<role>/<name>`."""
    return f"spiffe://{trust_domain}/{role}/{name}"


def server_name(role: Role | str, trust_domain: str) -> str:
    """The DNS SAN by which a client checks that it speaks to that role."""
    return f"{Role(role)}.{trust_domain}"


def check_trust_domain(value: str, field: str = "trust_domain") -> str:
    """`value`, or INVALID_FIELD when it cannot be the host of a SPIFFE URI."""
    if not _TRUST_DOMAIN.match(value) or ".." in value:
        raise invalid(field, f"{value!r} must be 1 to 128 of a-z, 0-9, '.' and '-'")
    return value


@lru_cache(maxsize=4096)
def identity_of(pem: bytes) -> Identity:
    """The identity in the first certificate of `pem`; the chain is not checked here.

    Cached by the bytes, for it is asked on every RPC.

    Raises IDENTITY_INVALID when the certificate says anything but exactly what
    this file's first lines say.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except (ValueError, x509.InvalidVersion):
        raise _refused("it is not a PEM certificate") from None
    return identity_in(certificate)


def identity_in(certificate: x509.Certificate) -> Identity:
    """As `identity_of`, of a parsed certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        raise _refused("it has no subject alternative name") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise _refused(f"it has {len(uris)} URI names; one is needed")
    match = _URI.match(uris[0])
    if match is None:
        raise _refused("its URI name is not spiffe://<trust-domain>/<role>/<name>")
    trust_domain, role_text, name = match.groups()
    try:
        role = Role(role_text)
    except ValueError:
        raise _refused(f"its role {role_text!r} is unknown") from None
    if names.get_values_for_type(x509.DNSName) != [server_name(role, trust_domain)]:
        raise _refused(f"its DNS name is not {server_name(role, trust_domain)}")
    if _attribute(certificate, NameOID.COMMON_NAME) != name:
        raise _refused("its common name is not the name in its URI")
    workspace = _attribute(certificate, NameOID.ORGANIZATION_NAME)
    pool = _attribute(certificate, NameOID.ORGANIZATIONAL_UNIT_NAME)
    check_claims(trust_domain, role, name, workspace, pool)
    return Identity(
        trust_domain=trust_domain,
        role=role,
        name=name,
        workspace=workspace,
        pool=pool,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        serial=certificate.serial_number,
        authority=_authority(certificate),
    )


def check_claims(trust_domain: str, role: Role, name: str, workspace: str, pool: str) -> None:
    """IDENTITY_INVALID unless these may stand together in a certificate."""
    try:
        check_trust_domain(trust_domain)
        check_name(name, "name")
        if role.has_workspace:
            check_name(workspace, "workspace")
        if pool:
            check_name(pool, "pool")
    except CarpalError as error:
        raise _refused(error.message) from None
    if workspace and not role.has_workspace:
        raise _refused(f"a {role} serves every workspace and may name none")
    if pool and role is not Role.DAEMON:
        raise _refused("only a daemon may be in a pool")


def verified_identity(chain: bytes, ca: bytes, now: datetime) -> Identity:
    """The identity of a PEM chain (leaf first), once its leaf chains to a CA in PEM `ca` at `now`.

    Raises IDENTITY_INVALID; its message says why.
    """
    # What follows the leaf leads from a CA that is trusted to the one that came after it.
    leaf, *others = _certificates(chain)
    verifier = PolicyBuilder().store(Store(_certificates(ca))).time(now).build_client_verifier()
    try:
        verifier.verify(leaf, others)
    except VerificationError as error:
        _log.debug("a chain was refused", extra={"why": str(error)})  # in the library's words
        over = leaf.not_valid_after_utc <= now or now < leaf.not_valid_before_utc
        when = f", or is not valid at {now:%F %TZ}" if over else ""
        raise _refused(f"it does not chain to an authority that is trusted here{when}") from None
    return identity_in(leaf)


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        raise _refused("it is not a PEM certificate") from None


def _authority(certificate: x509.Certificate) -> str:
    try:
        found = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        return ""
    return (found.value.key_identifier or b"").hex()


def _attribute(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    values = certificate.subject.get_attributes_for_oid(oid)
    if not values:
        return ""
    if len(values) > 1:
        raise _refused(f"its subject repeats {oid.dotted_string}")
    value = values[0].value
    if not isinstance(value, str):
        raise _refused("its subject is not text")
    return value


def _refused(why: str) -> CarpalError:
    return refuse(Reason.IDENTITY_INVALID, f"certificate refused: {why}")
