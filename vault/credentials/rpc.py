"""The RPCs of credentials: messages in and out; what is done is in the audit before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from carpal.server import caller
from carpal.v1 import vault_pb2 as pb
from vault.audit.audit import Audit
from vault.credentials.desk import CredentialDesk
from vault.credentials.rows import Row
from vault.credentials.rules import encoded
from vault.credentials.uses import Refresher, Uses
from vault.credentials.validate import validated
from vault.guard.transport import Guard
from vault.secret import Secret
from vault.sources.reference import Reference

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class CredentialRpcs:
    """A part of the service."""

    @property
    def _audit(self) -> Audit:
        raise NotImplementedError  # the service that this is a part of has it

    @property
    def _desk(self) -> CredentialDesk:
        raise NotImplementedError  # the service that this is a part of has it

    @property
    def guard(self) -> Guard:
        """The one way out."""
        raise NotImplementedError  # the service that this is a part of has it

    async def _do(self, work: Callable[[], T]) -> T:
        raise NotImplementedError  # the service that this is a part of has it

    def shown(self, row: Row) -> str:
        """A credential's state, as an operator is to see it; in the store's thread."""
        raise NotImplementedError  # the service that this is a part of has it

    def refreshing(self) -> Refresher:
        """Who gets new access tokens."""
        raise NotImplementedError  # the service that this is a part of has it

    async def CreateCredential(
        self, request: pb.CreateCredentialRequest, context: Context
    ) -> pb.CreateCredentialResponse:
        """Its secrets come in, and stay."""
        who, desk = caller(context), self._desk
        told = {"credential": request.credential_id, "kind": request.kind}
        async with self._audit.intent(
            "credential.create", actor=who.uri, workspace=who.workspace, **told
        ):
            row = await self._do(
                lambda: desk.create(
                    who,
                    credential_id=request.credential_id,
                    workspace=request.workspace,
                    vault_id=request.vault_id,
                    display_name=request.display_name,
                    kind=request.kind,
                    policy=request.policy,
                    secrets=request.secrets,
                )
            )
        return pb.CreateCredentialResponse(credential=_info(row))

    async def UpdateCredential(
        self, request: pb.UpdateCredentialRequest, context: Context
    ) -> pb.UpdateCredentialResponse:
        """Sessions that run use what is new from their next request on."""
        who, desk = caller(context), self._desk
        told = {"credential": request.credential_id, "workspace": who.workspace}
        async with self._audit.intent("credential.update", actor=who.uri, **told) as record:
            row = await self._do(
                lambda: desk.update(
                    who,
                    request.credential_id,
                    expected=request.expected_generation,
                    display_name=(
                        request.display_name if request.HasField("display_name") else None
                    ),
                    policy=request.policy if request.HasField("policy") else None,
                    secrets=request.secrets,
                )
            )
            record.add(generation=row.generation)
        return pb.UpdateCredentialResponse(credential=_info(row))

    async def ListCredentials(
        self, request: pb.ListCredentialsRequest, context: Context
    ) -> pb.ListCredentialsResponse:
        """Without secrets."""
        who, desk = caller(context), self._desk

        def listed() -> list[pb.CredentialInfo]:
            rows = desk.list(who, request.workspace, request.vault_id)
            return [_info(replace(row, state=self.shown(row))) for row in rows]

        return pb.ListCredentialsResponse(credentials=await self._do(listed))

    async def ArchiveCredential(
        self, request: pb.ArchiveCredentialRequest, context: Context
    ) -> pb.ArchiveCredentialResponse:
        """Nothing opens its secrets any more."""
        who, desk = caller(context), self._desk
        told = {"credential": request.credential_id, "workspace": who.workspace}
        async with self._audit.intent("credential.archive", actor=who.uri, **told):
            row = await self._do(lambda: desk.archive(who, request.credential_id))
        return pb.ArchiveCredentialResponse(credential=_info(row))

    async def ValidateCredential(
        self, request: pb.ValidateCredentialRequest, context: Context
    ) -> pb.ValidateCredentialResponse:
        """By its server, as a session would use it."""
        who, desk = caller(context), self._desk
        row = await self._do(lambda: desk.rows.get(who.workspace, request.credential_id))
        found = await validated(row, who.uri, self.uses(), self.guard)
        return pb.ValidateCredentialResponse(
            verdict=found.verdict, step=found.step, detail=found.detail, refresh=found.refresh
        )

    def uses(self) -> Uses:
        """Credentials as requests use them."""
        sources, guard = self._desk.sources, self.guard

        async def fetch(workspace: str, reference: Reference) -> Secret:
            return await sources.fetch(workspace, reference, guard)

        return Uses(self._desk.rows, self._audit, self._do, self.refreshing(), fetch)


def _info(row: Row) -> pb.CredentialInfo:
    return pb.CredentialInfo(
        credential_id=row.key.id,
        workspace=row.key.workspace,
        vault_id=row.key.vault_id,
        display_name=row.display_name,
        kind=row.kind,
        policy=encoded(row.policy),
        generation=row.generation,
        state=row.state,
        archived=None if row.archived is None else Timestamp(seconds=row.archived),
    )
