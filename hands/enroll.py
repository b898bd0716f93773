"""Enrolling: from a token to an identity on disk; and from one identity to the next.

Keys are made here and stay here. What an answer says is checked against the
token's pins and the key before anything is written, and an identity that is
valid is replaced only by a whole one.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from carpal.bundle import trusted
from carpal.client import KEEPALIVE, open_channel, rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity, Role, identity_in, server_name, verified_identity
from carpal.pending import Pending
from carpal.proof import Token, ca_pin, enrol_proof, renewal_signature
from carpal.proxy import Proxy, Way, by
from carpal.renewal import Answer, Ask, Connect, Renewal, checked, not_ours, utc_now
from carpal.status import Reason
from carpal.tls import IdentityFiles, Loaded, write_file
from carpal.v1 import enrollment_pb2 as pb
from carpal.v1 import enrollment_pb2_grpc
from hands.presented import pinned_chain

_TIMEOUT = 20.0
"""Seconds for one answer: the brain waits up to 10 for the vault, and may be tried again."""


@dataclass(frozen=True, slots=True)
class Links:
    """Where a daemon dials; written by enrolment, read by `carpal hand run`."""

    brains: tuple[str, ...]
    """`host:port` each."""
    enrollment: str
    """The enrolment port, for renewals."""

    def save(self, path: Path) -> None:
        """Write as JSON."""
        text = json.dumps({"brains": self.brains, "enrollment": self.enrollment}, indent=2)
        write_file(path, text.encode() + b"\n")

    @classmethod
    def load(cls, path: Path) -> "Links":
        """Read what `save` wrote. Raises CONFIG_INVALID naming the file."""
        try:
            body = json.loads(path.read_bytes())
            brains = tuple(str(brain) for brain in body["brains"])
            return cls(brains, str(body["enrollment"]))
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        except (ValueError, KeyError, TypeError):
            problem = "is damaged"
        raise refuse(
            Reason.CONFIG_INVALID, f"{path} {problem}", action="enrol with `carpal hand enroll`"
        )


@dataclass(frozen=True, slots=True)
class EnrolledAs:
    """A first identity, and where to dial with it."""

    identity: Identity
    links: Links


def links_path(identity_dir: Path) -> Path:
    """`links.json`, beside the identity folder."""
    return identity_dir.parent / "links.json"


async def enroll(token: Token, identity_dir: Path, way: Way | None = None) -> EnrolledAs:
    """Use the token once, and write the identity and its links.

    After a lost answer or a crash the same token sends the same request, so
    it gets the same certificate. Raises CA_MISMATCH, TOKEN_REFUSED,
    UNREACHABLE or VAULT_UNAVAILABLE; then nothing that was there is changed.
    """
    proxy = (way or Way()).to(token.address)
    shown, authority = await pinned_chain(token.address, token.pins, proxy)
    ca = _pem(authority)
    brain = _check_brain(token.address, b"".join(map(_pem, shown)), ca)
    pending = Pending.of(identity_dir, token.token_id)
    request = pb.EnrollRequest(
        token_id=token.token_id,
        certificate_request=pending.request,
        proof=enrol_proof(token.secret, token.token_id, pending.request),
    )
    try:
        async with dial_enrollment(token.address, brain.trust_domain, ca, proxy) as stub:
            with rpc_errors(f"the brain at {token.address}{by(proxy)}"):
                answer = await stub.Enroll(request, timeout=_TIMEOUT)
    except CarpalError as error:
        if error.reason is Reason.TOKEN_REFUSED:
            pending.withdraw()  # for good: its key is nobody's
        raise
    held = _pinned(answer.ca_bundle, token.pins) or ca
    new = checked(_answer(answer, held), pending.key, utc_now())
    if new.identity.role is not Role.DAEMON:
        raise not_ours(f"it is for a {new.identity.role}")
    files = IdentityFiles(identity_dir)
    links = Links(tuple(answer.brains), token.address)
    async with files.writing_in_turn():
        files.stage(new.key_pem, new.chain, new.ca)
        links.save(links_path(identity_dir))
        files.promote()
    pending.forget()
    return EnrolledAs(new.identity, links)


async def renew(identity_dir: Path, address: str, connect: Connect) -> Identity:
    """Get the next certificate for a new key, by proof of the old one, which may have expired.

    The new identity is connected with before it replaces the old one. Raises
    RENEWAL_REFUSED, UNREACHABLE, VAULT_UNAVAILABLE, or what `connect` raises;
    then the old one stays.
    """
    return await Renewal(IdentityFiles(identity_dir), asking(lambda: address), connect).renew()


def asking(address: Callable[[], str], way: Way | None = None) -> Ask:
    """Renews at a brain's enrolment port, `host:port`."""
    way = way or Way()

    async def ask(old: Loaded, request: bytes) -> Answer:
        there = address()
        proxy = way.to(there)
        async with dial_enrollment(there, old.identity.trust_domain, old.ca, proxy) as stub:
            with rpc_errors(f"the brain at {there}{by(proxy)}"):
                answer = await stub.Renew(
                    pb.RenewRequest(
                        certificate_request=request,
                        certificate=old.chain,
                        proof=renewal_signature(old.key, request),
                    ),
                    timeout=_TIMEOUT,
                )
        return _answer(answer, old.ca)

    return ask


def _answer(answer: pb.EnrollResponse | pb.RenewResponse, held: bytes) -> Answer:
    # It comes through a brain: a CA that nobody vouches for whom we trust is not trusted.
    bundle = trusted(answer.ca_bundle, answer.cross_certificates, held)
    told = answer.HasField("server_time")
    there = answer.server_time.ToDatetime(UTC) if told else None
    return Answer(answer.certificate_chain, bundle, there)


@asynccontextmanager
async def dial_enrollment(
    address: str, trust_domain: str, ca: bytes, proxy: Proxy | None
) -> AsyncIterator["enrollment_pb2_grpc.EnrollmentAsyncStub"]:
    """A channel to the enrolment port, which asks for no client certificate."""
    options: list[tuple[str, object]] = [
        *KEEPALIVE,
        ("grpc.ssl_target_name_override", server_name(Role.BRAIN, trust_domain)),
    ]
    credentials = grpc.ssl_channel_credentials(root_certificates=ca)
    async with open_channel(address, credentials, options, proxy) as channel:
        yield enrollment_pb2_grpc.EnrollmentStub(channel)


def _check_brain(address: str, chain: bytes, ca: bytes) -> Identity:
    """Who answers, before a proof is sent to it. Raises CA_MISMATCH, or says it is the clock."""
    now = datetime.now(UTC)
    try:
        certificate = x509.load_pem_x509_certificate(chain)
        shown = identity_in(certificate)
        if shown.expired(now) or shown.not_yet_valid(now):
            raise refuse(
                Reason.CERTIFICATE_EXPIRED,
                f"the certificate of {address} is valid from {shown.not_before:%F %TZ} to "
                f"{shown.not_after:%F %TZ}, and it is {now:%F %TZ} here",
                action="set this machine's clock, or issue the brain a new certificate",
            )
        brain = verified_identity(chain, ca, now)
    except CarpalError as error:
        if error.reason is not Reason.IDENTITY_INVALID:
            raise
        raise refuse(Reason.CA_MISMATCH, f"{address} is not a brain: {error.message}") from None
    if brain.role is not Role.BRAIN:
        raise refuse(Reason.CA_MISMATCH, f"{address} is {brain.uri}, not a brain")
    return brain


def _pinned(bundle: bytes, pins: tuple[bytes, ...]) -> bytes:
    """Those of the bundle's CAs that a pin names, PEM."""
    try:
        certificates = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return b""
    der = serialization.Encoding.DER
    return b"".join(_pem(one) for one in certificates if ca_pin(one.public_bytes(der)) in pins)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
