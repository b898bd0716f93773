"""The Enrollment service: what a machine without a certificate may ask.

It only relays. The vault checks every proof and signs, so a taken-over brain
mints nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from cryptography import x509
from google.protobuf.timestamp_pb2 import Timestamp

from carpal import __version__
from carpal.client import rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity, Role, identity_of, verified_identity
from carpal.link import PROTOCOL_MAX, PROTOCOL_MIN
from carpal.proof import check_diagnosis
from carpal.revocations import Revocations
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import enrollment_pb2 as pb
from carpal.v1 import enrollment_pb2_grpc, vault_pb2, vault_pb2_grpc

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

_VAULT_TIMEOUT = 10.0
"""Seconds for one signature; the vault needs a few milliseconds and one fsync."""
_TOLD = frozenset({Reason.TOKEN_REFUSED, Reason.RENEWAL_REFUSED, Reason.INVALID_FIELD})
"""What the vault says to the machine; anything else is between the brain and it."""


class EnrollmentService(enrollment_pb2_grpc.EnrollmentServicer):
    """Relays to the vault, and adds where brains are dialled."""

    def __init__(
        self,
        vault: "vault_pb2_grpc.VaultAsyncStub",
        brains: Callable[[], Sequence[str]],
        files: IdentityFiles,
        revocations: Revocations,
        quarantine: Callable[[str, str], Awaitable[CarpalError | None]] | None = None,
    ) -> None:
        """`brains` says, when asked, where daemons dial: `host:port` each.

        `quarantine` is `Gate.word`: why a daemon of that name and workspace may not link.
        `files` is the brain's own identity, beside which are the CAs to trust.
        """
        self._vault = vault
        self._brains = brains
        self._files = files
        self._revocations = revocations
        self._quarantine = quarantine

    async def Enroll(self, request: pb.EnrollRequest, context: Context) -> pb.EnrollResponse:
        """A token's proof, for a certificate."""
        signed = await self._sign(
            vault_pb2.SignRequest(
                certificate_request=request.certificate_request,
                token=vault_pb2.TokenProof(token_id=request.token_id, hmac=request.proof),
            )
        )
        return pb.EnrollResponse(
            certificate_chain=signed.certificate_chain,
            ca_bundle=signed.ca_bundle,
            cross_certificates=signed.cross_certificates,
            brains=self._brains(),
            renew_after=signed.renew_after,
            server_time=_now(),
        )

    async def Renew(self, request: pb.RenewRequest, context: Context) -> pb.RenewResponse:
        """The old key's proof, for the next certificate."""
        signed = await self._sign(
            vault_pb2.SignRequest(
                certificate_request=request.certificate_request,
                renewal=vault_pb2.RenewalProof(
                    certificate=request.certificate, signature=request.proof
                ),
            )
        )
        return pb.RenewResponse(
            certificate_chain=signed.certificate_chain,
            ca_bundle=signed.ca_bundle,
            cross_certificates=signed.cross_certificates,
            renew_after=signed.renew_after,
            server_time=_now(),
        )

    async def Diagnose(self, request: pb.DiagnoseRequest, context: Context) -> pb.DiagnoseResponse:
        """Why this brain refuses a certificate, to whoever holds its key."""
        identity, leaf = _shown(request.certificate)
        if not check_diagnosis(leaf, request.nonce, request.proof):
            raise refuse(Reason.RENEWAL_REFUSED, "the proof is not by the certificate's key")
        ca = await asyncio.to_thread(self._files.ca.read_bytes)
        found = diagnose(request.certificate, ca, self._revocations, datetime.now(UTC))
        detail, action = found and found.message, found and found.action
        if found is None and (kept := await self._kept_out(identity)) is not None:
            detail, action = f"the certificate is good; but {kept.message}", kept.action
        return pb.DiagnoseResponse(
            verdict=found.reason if found else "ok",
            detail=detail or "the certificate is good",
            action=action or "",
            server_time=_now(),
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            version=__version__,
        )

    async def _kept_out(self, identity: Identity) -> CarpalError | None:
        """What else keeps a daemon out; what cannot be asked is passed over."""
        if self._quarantine is None or identity.role is not Role.DAEMON:
            return None
        try:
            return await self._quarantine(identity.name, identity.workspace)
        except CarpalError as error:
            _log.warning("quarantine not known", extra={"why": str(error)})
            return None

    async def Retire(self, request: pb.RetireRequest, context: Context) -> pb.RetireResponse:
        """A daemon's own wish to be revoked, which the vault checks."""
        identity, _ = _shown(request.certificate)
        with self._vault_errors("revoked"):
            await self._vault.RevokeIdentity(
                vault_pb2.RevokeIdentityRequest(
                    identity=identity.uri,
                    retirement=vault_pb2.RetirementProof(
                        certificate=request.certificate,
                        nonce=request.nonce,
                        signature=request.proof,
                    ),
                ),
                timeout=_VAULT_TIMEOUT,
            )
        return pb.RetireResponse()

    async def _sign(self, request: vault_pb2.SignRequest) -> vault_pb2.SignResponse:
        with self._vault_errors("signed"):
            return await self._vault.Sign(request, timeout=_VAULT_TIMEOUT)

    @contextmanager
    def _vault_errors(self, what: str) -> Iterator[None]:
        try:
            with rpc_errors("the vault"):
                yield
        except CarpalError as error:
            if error.reason in _TOLD:
                raise
            about = {"what": what, "reason": error.reason, "why": str(error)}
            _log.error("no word from the vault", extra=about)
            why = f"the vault does not say that it {what}"
            raise refuse(Reason.VAULT_UNAVAILABLE, why) from None


def diagnose(
    certificate: bytes, ca: bytes, revocations: Revocations, now: datetime
) -> CarpalError | None:
    """Why a PEM certificate is refused at `now`; None when it is good."""
    try:
        identity = identity_of(certificate)
        expired, early = identity.expired(now), identity.not_yet_valid(now)
        # Of one that is outside its dates, it is said first whether it is of ours at all.
        moment = min(max(now, identity.not_before), identity.not_after - timedelta(seconds=1))
        _check_authority(certificate, ca, moment)
        revocations.check(identity)
        if not (expired or early):
            return None
        return refuse(
            Reason.CERTIFICATE_EXPIRED,
            f"the certificate of {identity.uri} is valid from {identity.not_before:%F %TZ} "
            f"to {identity.not_after:%F %TZ}, and here it is {now:%F %TZ}",
            action="set that machine's clock" if early else "renew the certificate",
        )
    except CarpalError as error:
        return error


def _check_authority(certificate: bytes, ca: bytes, moment: datetime) -> None:
    try:
        verified_identity(certificate, ca, moment)
    except CarpalError:
        raise refuse(
            Reason.IDENTITY_INVALID,
            f"the certificate of {identity_of(certificate).uri} is by no authority that is "
            "trusted here: it was replaced and retired, or is another vault's",
            action="enrol anew, with a new token of `carpal fleet token`",
        ) from None


def _shown(certificate: bytes) -> tuple[Identity, x509.Certificate]:
    """Whose it says it is, and the leaf; RENEWAL_REFUSED for what is no certificate."""
    try:
        return identity_of(certificate), x509.load_pem_x509_certificate(certificate)
    except (CarpalError, ValueError):
        raise refuse(Reason.RENEWAL_REFUSED, "that is not a certificate of ours") from None


def _now() -> Timestamp:
    now = Timestamp()
    now.FromDatetime(datetime.now(UTC))
    return now
