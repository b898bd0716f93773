"""The vault as a process: its files, its store, its server, until it is told to stop."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from carpal.bundle import is_by_newest
from carpal.config import state_dir
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.own_identity import kept_renewed
from carpal.process import until_stopped
from carpal.ready import announce
from carpal.renewal import Answer, Renewal
from carpal.revocations import FOLLOW_SECONDS
from carpal.server import serve
from carpal.tls import IdentityFiles, Loaded, Shown, server_credentials, write_file
from carpal.v1 import vault_pb2_grpc
from vault.files import Following, VaultFiles
from vault.revoking import Revoker
from vault.service import VaultService
from vault.signing import Signer
from vault.store import Store
from vault.tokens import Tokens

_log = logging.getLogger(__name__)

NAME = "vault"
"""There is one vault in a trust domain."""


class VaultConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `carpal vault run` may be told."""

    state_dir: Path = msgspec.field(default_factory=state_dir)
    listen: str = "127.0.0.1:7443"


def now() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


@contextmanager
def open_service(files: VaultFiles, clock: Callable[[], datetime] = now) -> Iterator[VaultService]:
    """The service over the vault's own files, held against any second vault."""
    files.load_authorities()  # before anything is made in a folder that may be mistyped
    with files.only_process():
        authorities = Following(files)
        with (
            closing(Store(files.store)) as store,
            ThreadPoolExecutor(1, thread_name_prefix="vault-store") as executor,
        ):
            signer = Signer(authorities, store, clock)
            yield VaultService(
                signer,
                Tokens(signer.trust_domain, store, clock),
                Revoker(signer, store, clock),
                executor,
            )


def own_renewal(service: VaultService, identity: IdentityFiles) -> Renewal:
    """Renews the vault's own identity. It holds the CA's key, so no proof is asked of it."""

    async def ask(old: Loaded, request: bytes) -> Answer:
        issued, bundle = await service.issue_own(old.identity.name, request)
        return Answer(issued.chain, bundle)

    async def connect(_candidate: Shown) -> None:
        """It shows itself to others, at the next handshake."""

    return Renewal(identity, ask, connect)


async def run(config: VaultConfig, stop: asyncio.Event, ready_fd: int | None = None) -> None:
    """Serve until `stop` is set."""
    files = VaultFiles(config.state_dir)
    identity = files.identity(Role.VAULT, NAME)
    with open_service(files) as service:
        renewal = own_renewal(service, identity)
        if identity.load().identity.expired(now()):
            await renewal.renew()  # it was off for longer than a day
        await service.look()
        async with (
            kept_renewed(renewal),
            serve(
                config.listen,
                server_credentials(identity),
                lambda server: vault_pb2_grpc.add_VaultServicer_to_server(service, server),
                revocations=service.revocations,
            ) as server,
        ):
            following = asyncio.create_task(service.follow())
            trusting = asyncio.create_task(_trust(service, identity, renewal.hurry))
            announce(ready_fd, address=server.address)
            _log.info("vault serves", extra={"address": server.address})
            try:
                await until_stopped(stop, following, trusting)
            finally:
                following.cancel()
                trusting.cancel()


async def _trust(
    service: VaultService, identity: IdentityFiles, changed: Callable[[], None]
) -> None:
    """Let in whom the CAs of now let in, from the next handshake on; until cancelled."""
    seen = b""
    while True:
        bundle = service.bundle
        try:
            shown = identity.certificate.read_bytes()
            if bundle != identity.ca.read_bytes():
                async with identity.writing_in_turn():
                    write_file(identity.ca, bundle)
            if bundle != seen and not is_by_newest(shown, bundle):
                changed()  # who comes after us is signed by the newest
            seen = bundle
        except (CarpalError, OSError) as error:
            _log.warning("the authorities to trust are not written", extra={"why": str(error)})
        await asyncio.sleep(FOLLOW_SECONDS)
