"""The RPCs of grants: messages in and out; the intent is in the audit before one is given."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration

from carpal.errors import CarpalError, invalid
from carpal.identity import Identity, Role, identity_uri
from carpal.ids import check_id, check_name
from carpal.revocations import Revocations
from carpal.server import caller
from carpal.v1 import vault_pb2 as pb
from carpal.v1.types_pb2 import SignedBytes
from vault.audit.audit import Audit
from vault.credentials.desk import CredentialDesk
from vault.grants.grant import AUDIENCES, OF_BRAINS, Terms
from vault.grants.grants import LIFE, Grants, check_audience
from vault.grants.ticket import Driver, driver

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")
CREDENTIALS_MAX = 64
VAULTS_MAX = 50


class GrantRpcs:
    """A part of the service."""

    grants: Grants
    revocations: Revocations

    @property
    def _audit(self) -> Audit:
        raise NotImplementedError

    @property
    def _desk(self) -> CredentialDesk:
        raise NotImplementedError

    @property
    def bundle(self) -> bytes:
        """The CAs to trust now, PEM."""
        raise NotImplementedError

    async def _do(self, work: Callable[[], T]) -> T:
        raise NotImplementedError

    async def GrantSession(
        self, request: pb.GrantSessionRequest, context: Context
    ) -> pb.GrantSessionResponse:
        """A token, or the same one for longer."""
        who = caller(context)
        drives = self._driver(request.ticket, who, "grant.give")
        terms = _terms(request, who, drives)
        desk = self._desk
        told = {"session": drives.session, "workspace": drives.workspace, "kind": terms.audience}
        async with self._audit.intent(
            "grant.give",
            actor=who.uri,
            identity=terms.caller,
            hand=terms.hand,
            epoch_of_session=drives.epoch,
            **told,
        ) as record:
            self.grants.drives(drives)  # whatever becomes of this grant, those before are over
            for each in terms.credentials:
                await self._do(lambda each=each: desk.rows.get(drives.workspace, each))  # type: ignore[misc]
            grant, token = self.grants.give(drives, request.grant_id, terms)
            record.add(grant=grant.id)
        return pb.GrantSessionResponse(grant=token, expires_in=Duration(seconds=int(LIFE)))

    async def RevokeSession(
        self, request: pb.RevokeSessionRequest, context: Context
    ) -> pb.RevokeSessionResponse:
        """By the driver, or by an operator of the session's workspace."""
        who = caller(context)
        session, workspace = request.session_id, who.workspace or None
        drives = None
        if who.role is not Role.OPERATOR:
            drives = self._driver(request.ticket, who, "grant.revoke")
            if session not in ("", drives.session):
                raise invalid("session_id", "is not the session of the ticket")
            session, workspace = drives.session, drives.workspace
        check_id(session, "session_id")
        audience = request.audience or None
        if audience not in (None, *AUDIENCES):
            raise invalid("audience", f"must be one of {', '.join(AUDIENCES)}")
        async with self._audit.intent("grant.revoke", actor=who.uri, session=session) as record:
            if drives is not None:
                self.grants.drives(drives)
            record.add(count=self.grants.revoke(session, workspace, audience))
        return pb.RevokeSessionResponse()

    def _driver(self, ticket: SignedBytes, who: Identity, action: str) -> Driver:
        try:
            return driver(ticket, who, self.bundle, self.revocations, datetime.now(UTC))
        except CarpalError as error:
            self._audit.denied(action, error.message, actor=who.uri)
            raise


def _terms(request: pb.GrantSessionRequest, who: Identity, drives: Driver) -> Terms:
    audience, bound_to = request.audience, request.bound_to or who.uri
    if audience not in AUDIENCES:
        raise invalid("audience", f"must be one of {', '.join(AUDIENCES)}")
    if len(request.credential_ids) > CREDENTIALS_MAX:
        raise invalid("credential_ids", f"must be at most {CREDENTIALS_MAX}")
    for each in request.credential_ids:
        check_id(each, "credential_ids")
    if len(request.vault_ids) > VAULTS_MAX:
        raise invalid("vault_ids", f"must be at most {VAULTS_MAX}")
    for each in request.vault_ids:
        check_name(each, "vault_ids")
    check_audience(audience, bound_to, request.hand_id, who, _is_daemon(bound_to, who.trust_domain))
    return Terms(
        session=drives.session,
        workspace=drives.workspace,
        audience=audience,
        caller=bound_to,
        hand=request.hand_id,
        credentials=tuple(request.credential_ids),
        policy=bytes(request.policy),
        epoch=drives.epoch if audience == OF_BRAINS else 0,
        agent=drives.agent,
        vaults=tuple(request.vault_ids),
        user=drives.user,
    )


def _is_daemon(uri: str, trust_domain: str) -> bool:
    name = uri.rpartition("/")[2]
    try:
        check_name(name, "bound_to")
    except CarpalError:
        return False
    return uri == identity_uri(trust_domain, Role.DAEMON, name)
