"""The Vault service over gRPC: messages in and out, nothing decided here."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from carpal import __version__
from carpal.errors import invalid
from carpal.identity import Role
from carpal.revocations import FOLLOW_SECONDS, Revocations
from carpal.server import caller, not_built
from carpal.v1 import vault_pb2 as pb
from carpal.v1 import vault_pb2_grpc
from vault.ca import Claims, requested_key
from vault.revoking import Revoker
from vault.signing import Issued, Signer
from vault.store import TokenRow
from vault.tokens import Tokens

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class VaultService(vault_pb2_grpc.VaultServicer):
    """What of the vault is built: the certificate authority and its revocations."""

    Unseal = not_built
    CreateCredential = not_built
    UpdateCredential = not_built
    ListCredentials = not_built
    ArchiveCredential = not_built
    ValidateCredential = not_built
    GrantSession = not_built
    RevokeSession = not_built
    ReadAudit = not_built

    def __init__(
        self,
        signer: Signer,
        tokens: Tokens,
        revoker: Revoker,
        executor: ThreadPoolExecutor,
    ) -> None:
        """`executor` has one thread: the store's calls must not overlap."""
        self._signer = signer
        self._tokens = tokens
        self._revoker = revoker
        self._executor = executor
        self.revocations = Revocations()
        """Those that this vault itself goes by; `follow` keeps them."""

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        """Not sealed, for there is no seal yet; no audit head, for there is no audit yet."""
        return pb.GetStatusResponse(
            sealed=False,
            version=__version__,
            trust_domain=self._signer.trust_domain,
        )

    async def Sign(self, request: pb.SignRequest, context: Context) -> pb.SignResponse:
        """For a token, or for the old key."""
        who = caller(context)
        csr = request.certificate_request
        match request.WhichOneof("proof"):
            case "token":
                token = request.token
                issued = await self._do(lambda: self._signer.enrol(token.token_id, csr, token.hmac))
            case "renewal":
                old = request.renewal
                issued = await self._do(
                    lambda: self._signer.renew(who, csr, old.certificate, old.signature)
                )
            case _:
                raise invalid("proof", "is missing, or of a kind this vault does not know")
        return self._sign_response(issued)

    async def CreateToken(
        self, request: pb.CreateTokenRequest, context: Context
    ) -> pb.CreateTokenResponse:
        """The secret comes in; what goes out is what the token must pin."""
        who = caller(context)
        ttl = _timedelta(request.ttl, "ttl") if request.HasField("ttl") else None
        row = await self._do(
            lambda: self._tokens.create(
                who,
                token_id=request.token_id,
                secret=request.secret,
                name=request.name,
                pool=request.pool,
                workspace=request.workspace,
                ttl=ttl,
            )
        )
        return pb.CreateTokenResponse(
            token=_token_info(row), ca_pins=self._signer.authorities().pins
        )

    async def ListTokens(
        self, request: pb.ListTokensRequest, context: Context
    ) -> pb.ListTokensResponse:
        """Without secrets."""
        who = caller(context)
        rows = await self._do(lambda: self._tokens.list(who, request.workspace))
        return pb.ListTokensResponse(tokens=[_token_info(row) for row in rows])

    async def RevokeToken(
        self, request: pb.RevokeTokenRequest, context: Context
    ) -> pb.RevokeTokenResponse:
        """What is gone is revoked already."""
        who = caller(context)
        await self._do(lambda: self._tokens.revoke(who, request.token_id))
        return pb.RevokeTokenResponse()

    async def RevokeIdentity(
        self, request: pb.RevokeIdentityRequest, context: Context
    ) -> pb.RevokeIdentityResponse:
        """By an operator, or by a daemon itself through a brain."""
        who = caller(context)
        if who.role is Role.OPERATOR:
            uri, reason = request.identity, request.reason
            await self._do(lambda: self._revoker.by_operator(who, uri, reason))
        else:
            own = request.retirement
            await self._do(
                lambda: self._revoker.by_itself(own.certificate, own.nonce, own.signature)
            )
        await self.look()
        return pb.RevokeIdentityResponse()

    async def GetTrust(self, request: pb.GetTrustRequest, context: Context) -> pb.GetTrustResponse:
        """The CAs, and the signed list of revocations."""
        authorities = self._signer.authorities()
        return pb.GetTrustResponse(
            ca_bundle=authorities.bundle,
            cross_certificates=authorities.crosses,
            revocations=await self._do(self._revoker.signed_list),
        )

    async def follow(self) -> None:
        """Keep `revocations` as the store has them, which commands write too; until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def look(self) -> None:
        """Take the revocations as they are in the store now."""
        told = await self._do(self._revoker.signed_list)
        self.revocations.take(told, self.bundle)
        self.revocations.trust(self.bundle)

    @property
    def bundle(self) -> bytes:
        """The CAs to trust now, PEM."""
        return self._signer.authorities().bundle

    async def issue_own(self, name: str, request: bytes) -> tuple[Issued, bytes]:
        """The next certificate of this vault itself, and the CAs to trust. No RPC."""
        claims = Claims(Role.VAULT, name)
        issued = await self._do(
            lambda: self._signer.issue_by_command(claims, requested_key(request))
        )
        return issued, self.bundle

    async def _do(self, work: Callable[[], T]) -> T:
        """Off the event loop: every write waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _sign_response(self, issued: Issued) -> pb.SignResponse:
        authorities = self._signer.authorities()
        return pb.SignResponse(
            certificate_chain=issued.chain,
            ca_bundle=authorities.bundle,
            cross_certificates=authorities.crosses,
            renew_after=_duration(issued.renew_after),
        )


def _timedelta(value: Duration, field: str) -> timedelta:
    try:
        return value.ToTimedelta()
    except (ValueError, OverflowError):
        raise invalid(field, "is not a duration") from None


def _duration(value: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(value)
    return duration


def _token_info(row: TokenRow) -> pb.TokenInfo:
    return pb.TokenInfo(
        token_id=row.token_id,
        name=row.name,
        pool=row.pool,
        workspace=row.workspace,
        expires=Timestamp(seconds=row.expires),
        used=None if row.used is None else Timestamp(seconds=row.used),
    )
