"""A real vault, and a real brain's enrolment port in front of it, for tests."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration

from brain.enrollment import EnrollmentService
from carpal.client import dial
from carpal.errors import CarpalError
from carpal.identity import DEFAULT_TRUST_DOMAIN, Role
from carpal.proof import Token
from carpal.server import serve
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import enrollment_pb2_grpc, vault_pb2, vault_pb2_grpc
from vault import setup
from vault.app import open_service
from vault.authority.ca import Claims
from vault.files import VaultFiles
from vault.service import VaultService

BRAINS = ("brain-1.example:7443", "brain-2.example:7443")


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.offset


@dataclass
class Trust:
    """A trust domain whose vault and enrolment port serve."""

    files: VaultFiles
    clock: Clock
    vault_address: str
    enrollment_address: str
    service: VaultService
    _stack: AsyncExitStack

    def identity(self, role: Role, name: str) -> IdentityFiles:
        """An identity of this machine, made by `init`."""
        return self.files.identity(role, name)

    def issue(self, claims: Claims) -> IdentityFiles:
        """One more identity."""
        out = IdentityFiles(self.files.state / "more" / claims.role / claims.name)
        setup.issue(self.files, claims, out, self.clock)
        return out

    async def channel(self, files: IdentityFiles) -> grpc.aio.Channel:
        """A channel to the vault as someone; closed at the end."""
        return await self._stack.enter_async_context(dial(self.vault_address, Role.VAULT, files))

    async def vault(self, files: IdentityFiles | None = None) -> "vault_pb2_grpc.VaultAsyncStub":
        """The vault's stub, as the operator or as someone else."""
        who = files or self.identity(Role.OPERATOR, "operator")
        return vault_pb2_grpc.VaultStub(await self.channel(who))

    async def token(
        self, name: str = "build-1", pool: str = "", ttl: timedelta = timedelta(hours=1)
    ) -> Token:
        """A token as `carpal fleet token` makes one."""
        token_id, secret = f"tok_{secrets.token_hex(8)}", secrets.token_bytes(32)
        duration = Duration()
        duration.FromTimedelta(ttl)
        stub = await self.vault()
        answer = await stub.CreateToken(
            vault_pb2.CreateTokenRequest(
                token_id=token_id, secret=secret, name=name, pool=pool, ttl=duration
            ),
            timeout=10,
        )
        return Token(self.enrollment_address, tuple(answer.ca_pins), token_id, secret)


@asynccontextmanager
async def trust(
    state: Path,
    trust_domain: str = DEFAULT_TRUST_DOMAIN,
    age: timedelta = timedelta(),
    *,
    brains: Callable[[], Sequence[str]] = lambda: BRAINS,
    quarantine: Callable[[str, str], Awaitable[CarpalError | None]] | None = None,
) -> AsyncIterator[Trust]:
    """Make a trust domain in `state` and serve its vault and one enrolment port.

    Its CA is of `age`: certificates that are older than their CA are good for nothing. Who enrols
    is told of `brains`; `quarantine` says why a daemon, by name and workspace, may not link.
    """
    files, clock = VaultFiles(state), Clock()
    clock.offset = -age
    setup.init(files, trust_domain, [], clock)
    clock.offset = timedelta()
    for claims in (
        Claims(Role.VAULT, "vault"),
        Claims(Role.SESSIOND, "sessiond"),
        Claims(Role.BRAIN, "brain-1"),
        Claims(Role.OPERATOR, "operator", "default"),
    ):
        setup.issue(files, claims, files.identity(claims.role, claims.name), clock)
    vault_identity = files.identity(Role.VAULT, "vault")
    brain = files.identity(Role.BRAIN, "brain-1")
    async with AsyncExitStack() as stack:
        service = stack.enter_context(open_service(files, clock))
        vault_server = await stack.enter_async_context(
            serve(
                "127.0.0.1:0",
                server_credentials(vault_identity),
                lambda server: vault_pb2_grpc.add_VaultServicer_to_server(service, server),
                revocations=service.revocations,
            )
        )
        channel = await stack.enter_async_context(dial(vault_server.address, Role.VAULT, brain))
        stub = vault_pb2_grpc.VaultStub(channel)
        relay = EnrollmentService(stub, brains, brain, service.revocations, quarantine)
        enrollment_server = await stack.enter_async_context(
            serve(
                "127.0.0.1:0",
                server_credentials(brain, require_client=False),
                lambda server: enrollment_pb2_grpc.add_EnrollmentServicer_to_server(relay, server),
                authorize=False,
            )
        )
        yield Trust(files, clock, vault_server.address, enrollment_server.address, service, stack)
