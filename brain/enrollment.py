"""The Enrollment service: what a machine without a certificate may ask.

It only relays. The vault checks every proof and signs, so a taken-over brain
mints nothing.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from carpal.client import rpc_errors
from carpal.errors import CarpalError, refuse
from carpal.server import not_built
from carpal.status import Reason
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

    Diagnose = not_built
    Retire = not_built

    def __init__(
        self, vault: "vault_pb2_grpc.VaultAsyncStub", brains: Callable[[], Sequence[str]]
    ) -> None:
        """`brains` says, when asked, where daemons dial: `host:port` each."""
        self._vault = vault
        self._brains = brains

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
            renew_after=signed.renew_after,
            server_time=_now(),
        )

    async def _sign(self, request: vault_pb2.SignRequest) -> vault_pb2.SignResponse:
        try:
            with rpc_errors("the vault"):
                return await self._vault.Sign(request, timeout=_VAULT_TIMEOUT)
        except CarpalError as error:
            if error.reason in _TOLD:
                raise
            _log.error("vault did not sign", extra={"reason": error.reason, "why": str(error)})
            raise refuse(Reason.VAULT_UNAVAILABLE, "the vault cannot sign now") from None


def _now() -> Timestamp:
    now = Timestamp()
    now.FromDatetime(datetime.now(UTC))
    return now
