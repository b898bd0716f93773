"""Asking the enrolment port about this machine's own certificate: why it is refused; to revoke it.

A refusal by TLS has no words: expired, of another authority and missing all read alike. So a
machine that is refused may ask, by proof that it holds the certificate's key.
"""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from carpal.client import rpc_errors
from carpal.proof import diagnosis_signature, retirement_signature
from carpal.proxy import Way
from carpal.tls import IdentityFiles, Loaded
from carpal.v1 import enrollment_pb2 as pb
from hands.enroll import dial_enrollment

_TIMEOUT = 20.0
"""Seconds for one answer: the brain waits up to 10 for the vault."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a brain says of a certificate."""

    verdict: str
    """`ok`, or the reason for which it is refused."""
    detail: str
    action: str
    server_time: datetime
    """The brain's clock, in UTC."""


async def diagnose(identity_dir: Path, address: str, way: Way | None = None) -> Diagnosis:
    """Ask the enrolment port at `host:port` why this machine's certificate is refused."""
    loaded, nonce = IdentityFiles(identity_dir).load(), secrets.token_bytes(32)
    proof = diagnosis_signature(loaded.key, _leaf(loaded), nonce)
    proxy = (way or Way()).to(address)
    async with dial_enrollment(address, loaded.identity.trust_domain, loaded.ca, proxy) as stub:
        with rpc_errors(f"the brain at {address}"):
            answer = await stub.Diagnose(
                pb.DiagnoseRequest(certificate=loaded.chain, nonce=nonce, proof=proof),
                timeout=_TIMEOUT,
            )
    return Diagnosis(
        answer.verdict, answer.detail, answer.action, answer.server_time.ToDatetime(UTC)
    )


async def retire(identity_dir: Path, address: str, way: Way | None = None) -> None:
    """Have everything revoked that was issued to this machine; its name is free to enrol again.

    Raises RENEWAL_REFUSED, UNREACHABLE or VAULT_UNAVAILABLE; then nothing was revoked.
    """
    loaded, nonce = IdentityFiles(identity_dir).load(), secrets.token_bytes(32)
    proof = retirement_signature(loaded.key, _leaf(loaded), nonce)
    proxy = (way or Way()).to(address)
    async with dial_enrollment(address, loaded.identity.trust_domain, loaded.ca, proxy) as stub:
        with rpc_errors(f"the brain at {address}"):
            await stub.Retire(
                pb.RetireRequest(certificate=loaded.chain, nonce=nonce, proof=proof),
                timeout=_TIMEOUT,
            )


def _leaf(loaded: Loaded) -> bytes:
    leaf = x509.load_pem_x509_certificate(loaded.chain)
    return leaf.public_bytes(serialization.Encoding.DER)
