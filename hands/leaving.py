"""Asking the enrolment port about this machine's own certificate: why it is refused; to revoke it.

A refusal by TLS has no words: expired, of another authority and missing all read alike. So a
machine that is refused may ask, by proof that it holds the certificate's key.
"""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.client import rpc_errors
from carpal.errors import Unreachable, refuse
from carpal.proof import diagnosis_signature, retirement_signature
from carpal.proxy import Way
from carpal.tls import IdentityFiles, Loaded
from carpal.v1 import enrollment_pb2 as pb
from carpal.v1 import enrollment_pb2_grpc
from hands.enroll import dial_enrollment

_TIMEOUT = 20.0
"""Seconds for one answer: the brain waits up to 10 for the vault."""
Prove = Callable[[ec.EllipticCurvePrivateKey, bytes, bytes], bytes]
"""The key's signature over its certificate (DER) and a nonce."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a brain says of a certificate."""

    verdict: str
    """`ok`, or the reason for which it is refused."""
    detail: str
    action: str
    server_time: datetime
    """The brain's clock, in UTC."""
    protocols: tuple[int, int]
    """The contract versions that the brain speaks, first and last; zeros when it does not say."""
    version: str
    """The brain's release; empty when it does not say."""


async def diagnose(identity_dir: Path, address: str, way: Way | None = None) -> Diagnosis:
    """Ask the enrolment port at `host:port` why this machine's certificate is refused."""
    async with _asking(identity_dir, address, way, diagnosis_signature) as (stub, shown):
        return diagnosis(await stub.Diagnose(pb.DiagnoseRequest(**shown), timeout=_TIMEOUT))


def diagnosis(answer: pb.DiagnoseResponse) -> Diagnosis:
    """What a brain answered."""
    return Diagnosis(
        verdict=answer.verdict,
        detail=answer.detail,
        action=answer.action,
        server_time=answer.server_time.ToDatetime(UTC),
        protocols=(answer.protocol_min, answer.protocol_max),
        version=answer.version,
    )


def who_asks(loaded: Loaded, prove: Prove = diagnosis_signature) -> dict[str, bytes]:
    """What proves that this machine asks: its certificate, a nonce, and its key's word on both."""
    nonce = secrets.token_bytes(32)
    leaf = x509.load_pem_x509_certificate(loaded.chain)
    proof = prove(loaded.key, leaf.public_bytes(serialization.Encoding.DER), nonce)
    return {"certificate": loaded.chain, "nonce": nonce, "proof": proof}


async def retire(identity_dir: Path, address: str, way: Way | None = None) -> None:
    """Have everything revoked that was issued to this machine; its name is free to enrol again.

    Raises RENEWAL_REFUSED: then nothing was revoked. After UNREACHABLE or
    VAULT_UNAVAILABLE that is unknown; to retire again does no harm.
    """
    try:
        async with _asking(identity_dir, address, way, retirement_signature) as (stub, shown):
            await stub.Retire(pb.RetireRequest(**shown), timeout=_TIMEOUT)
    except Unreachable as error:
        raise refuse(
            error.reason,
            f"{error.message}; it is unknown whether this machine was revoked",
            action="retire again, or ask with `carpal hand diagnose`",
        ) from None


@asynccontextmanager
async def _asking(
    identity_dir: Path, address: str, way: Way | None, prove: Prove
) -> AsyncIterator[tuple["enrollment_pb2_grpc.EnrollmentAsyncStub", dict[str, bytes]]]:
    """The enrolment port, and what shows it that this machine asks: by its certificate's key."""
    loaded = IdentityFiles(identity_dir).load()
    proxy = (way or Way()).to(address)
    async with dial_enrollment(address, loaded.identity.trust_domain, loaded.ca, proxy) as stub:
        with rpc_errors(f"the brain at {address}"):
            yield stub, who_asks(loaded, prove)
