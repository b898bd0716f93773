"""The Vault service over gRPC: messages in and out, nothing decided here."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from carpal import __version__
from carpal.errors import CarpalError, invalid
from carpal.identity import Role
from carpal.revocations import FOLLOW_SECONDS, Revocations
from carpal.server import caller
from carpal.v1 import vault_pb2 as pb
from carpal.v1 import vault_pb2_grpc
from vault.audit.audit import Audit
from vault.authority.ca import Claims, requested_key
from vault.authority.signing import Issued, Signer
from vault.credentials.desk import CredentialDesk
from vault.credentials.rows import Row as CredentialRow
from vault.credentials.rpc import CredentialRpcs
from vault.door import Door
from vault.grants.grants import Grants
from vault.grants.rpc import GrantRpcs
from vault.guard.transport import Guard
from vault.messages import audit_entry, chain_head, duration, timedelta_of, token_info
from vault.oauth.engine import Engine
from vault.oauth.kept import Kept, Refreshing
from vault.oauth.states import States

_log = logging.getLogger(__name__)

ROTATE_SECONDS = 3_600.0
"""Between looks whether the terms are to be rotated: they last for months."""
Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class VaultService(CredentialRpcs, GrantRpcs, vault_pb2_grpc.VaultServicer):
    """The seal, the certificate authority, revocations, the audit; credentials and grants."""

    def __init__(self, door: Door, guard: Guard | None = None) -> None:
        """While the door is shut all but GetStatus and Unseal is VAULT_SEALED.

        `guard` is another than that of production, in tests.
        """
        self._guard = guard
        self.door = door
        self.revocations = Revocations()
        """Those that this vault itself goes by; `follow` keeps them."""
        self.grants = Grants(self._denied)
        self._engine: Engine | None = None

    @property
    def _signer(self) -> Signer:
        return self.door.parts.signer

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        """Also while it is sealed."""
        door = self.door
        status = pb.GetStatusResponse(
            sealed=not door.is_open,
            version=__version__,
            trust_domain=door.files.trust_domain(),
            seal=door.seal_kind,
            sealed_because=door.why,
        )
        if door.is_open:
            status.term = door.parts.opened.safe.term
            status.audit_head.CopyFrom(chain_head(door.parts.reader.head()))
        return status

    async def Unseal(self, request: pb.UnsealRequest, context: Context) -> pb.UnsealResponse:
        """Half a second of work for a passphrase, and it waits for nobody."""
        who = caller(context)
        await asyncio.to_thread(self.door.unseal, request.key)
        self.door.parts.audit.event("unseal", actor=who.uri)
        return pb.UnsealResponse()

    async def ReadAudit(
        self, request: pb.ReadAuditRequest, context: Context
    ) -> pb.ReadAuditResponse:
        """Lines after a number."""
        limit = request.limit or 100
        if limit > 1_000:
            raise invalid("limit", "must be 1 to 1,000")
        reader = self.door.parts.reader
        rows = await asyncio.to_thread(reader.after, request.after, limit)
        return pb.ReadAuditResponse(
            entries=[audit_entry(row) for row in rows], head=chain_head(reader.head())
        )

    async def Sign(self, request: pb.SignRequest, context: Context) -> pb.SignResponse:
        """For a token, or for the old key."""
        who, signer = caller(context), self._signer
        csr = request.certificate_request
        match request.WhichOneof("proof"):
            case "token":
                token = request.token
                told = {"token": token.token_id}
                work = lambda: signer.enrol(token.token_id, csr, token.hmac)  # noqa: E731
            case "renewal":
                old, told = request.renewal, {}
                work = lambda: signer.renew(who, csr, old.certificate, old.signature)  # noqa: E731
            case _:
                raise invalid("proof", "is missing, or of a kind this vault does not know")
        async with self._audit.intent("sign", actor=who.uri, **told) as record:
            issued = await self._do(work)
            record.add(identity=issued.identity)
        return self._sign_response(issued)

    async def CreateToken(
        self, request: pb.CreateTokenRequest, context: Context
    ) -> pb.CreateTokenResponse:
        """The secret comes in; what goes out is what the token must pin."""
        who = caller(context)
        ttl = timedelta_of(request.ttl, "ttl") if request.HasField("ttl") else None
        tokens = self.door.parts.tokens
        told = {"token": request.token_id, "name": request.name}
        async with self._audit.intent("token.create", actor=who.uri, **told):
            row = await self._do(
                lambda: tokens.create(
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
            token=token_info(row), ca_pins=self._signer.authorities().pins
        )

    async def ListTokens(
        self, request: pb.ListTokensRequest, context: Context
    ) -> pb.ListTokensResponse:
        """Without secrets."""
        who, tokens = caller(context), self.door.parts.tokens
        rows = await self._do(lambda: tokens.list(who, request.workspace))
        return pb.ListTokensResponse(tokens=[token_info(row) for row in rows])

    async def RevokeToken(
        self, request: pb.RevokeTokenRequest, context: Context
    ) -> pb.RevokeTokenResponse:
        """What is gone is revoked already."""
        who, tokens = caller(context), self.door.parts.tokens
        async with self._audit.intent("token.revoke", actor=who.uri, token=request.token_id):
            await self._do(lambda: tokens.revoke(who, request.token_id))
        return pb.RevokeTokenResponse()

    async def RevokeIdentity(
        self, request: pb.RevokeIdentityRequest, context: Context
    ) -> pb.RevokeIdentityResponse:
        """By an operator, or by a daemon itself through a brain."""
        who, revoker = caller(context), self.door.parts.revoker
        uri, reason, own = request.identity, request.reason, request.retirement
        async with self._audit.intent("revoke", actor=who.uri, identity=uri):
            if who.role is Role.OPERATOR:
                await self._do(lambda: revoker.by_operator(who, uri, reason))
            else:
                await self._do(lambda: revoker.by_itself(own.certificate, own.nonce, own.signature))
        await self.look()
        return pb.RevokeIdentityResponse()

    async def GetTrust(self, request: pb.GetTrustRequest, context: Context) -> pb.GetTrustResponse:
        """The CAs, and the signed list of revocations."""
        authorities = self._signer.authorities()
        return pb.GetTrustResponse(
            ca_bundle=authorities.bundle,
            cross_certificates=authorities.crosses,
            revocations=await self._do(self.door.parts.revoker.signed_list),
        )

    async def follow(self) -> None:
        """Keep `revocations` as the store has them, which commands write too; until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def rotate(self) -> None:
        """Replace the terms whenever that is due; until cancelled."""
        while True:
            try:
                await self._do(self.door.rotate_if_due)
            except CarpalError as error:
                _log.warning("the terms are not rotated", extra={"why": str(error)})
            await asyncio.sleep(ROTATE_SECONDS)

    async def look(self) -> None:
        """Take the revocations as they are in the store now."""
        told = await self._do(self.door.parts.revoker.signed_list)
        self.revocations.take(told, self.bundle)
        self.revocations.trust(self.bundle)

    @property
    def bundle(self) -> bytes:
        """The CAs to trust now, PEM."""
        return self._signer.authorities().bundle

    async def aclose(self) -> None:
        """End all grants, and hang up on all servers."""
        self.grants.close()
        if self._engine is not None:
            await self._engine.aclose()  # what is asked for is not asked for again: it is bounded
        if self._guard is not None:
            await self._guard.aclose()

    async def issue_own(self, name: str, request: bytes) -> tuple[Issued, bytes]:
        """The next certificate of this vault itself, and the CAs to trust. No RPC."""
        claims, signer = Claims(Role.VAULT, name), self._signer
        async with self._audit.intent("sign", actor="vault"):
            issued = await self._do(lambda: signer.issue_by_command(claims, requested_key(request)))
        return issued, self.bundle

    async def _do(self, work: Callable[[], T]) -> T:
        """Off the event loop: every write waits for the disk."""
        executor = self.door.parts.executor
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    @property
    def _audit(self) -> Audit:
        return self.door.parts.audit

    @property
    def guard(self) -> Guard:
        """Made at first use: it needs a loop."""
        if self._guard is None:
            self._guard = Guard()
        return self._guard

    def shown(self, row: CredentialRow) -> str:
        """Of an OAuth credential also what became of refreshing it."""
        return States(self._desk.rows).shown(row)

    def refreshing(self) -> Refreshing:
        """The one engine of this process."""
        if self._engine is None:
            parts = self.door.parts
            kept = Kept(parts.desk.rows)
            self._engine = Engine(parts.opened.safe, parts.executor, kept, self.guard, parts.audit)
        return Refreshing(self._engine)

    @property
    def _desk(self) -> CredentialDesk:
        return self.door.parts.desk

    def _denied(self, action: str, reason: str, *, actor: str, **facts: str | int) -> None:
        self._audit.denied(action, reason, actor=actor, **facts)

    def _sign_response(self, issued: Issued) -> pb.SignResponse:
        authorities = self._signer.authorities()
        return pb.SignResponse(
            certificate_chain=issued.chain,
            ca_bundle=authorities.bundle,
            cross_certificates=authorities.crosses,
            renew_after=duration(issued.renew_after),
        )
