"""The vault as a process: its files, its store, its server, until it is told to stop."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from carpal.config import state_dir
from carpal.identity import Role
from carpal.ready import announce
from carpal.server import serve
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import vault_pb2_grpc
from vault.files import VaultFiles
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
def open_service(
    files: VaultFiles, identity: IdentityFiles, clock: Callable[[], datetime] = now
) -> Iterator[VaultService]:
    """The service over the vault's own files, held against any second vault."""
    with files.only_process():
        authority = files.load_authority()
        with (
            closing(Store(files.store)) as store,
            ThreadPoolExecutor(1, thread_name_prefix="vault-store") as executor,
        ):
            yield VaultService(
                Signer(authority, store, clock),
                Tokens(authority.trust_domain, store, clock),
                identity,
                executor,
                clock,
            )


async def run(config: VaultConfig, stop: asyncio.Event, ready_fd: int | None = None) -> None:
    """Serve until `stop` is set."""
    files = VaultFiles(config.state_dir)
    identity = files.identity(Role.VAULT, NAME)
    with open_service(files, identity) as service:
        async with serve(
            config.listen,
            server_credentials(identity),
            lambda server: vault_pb2_grpc.add_VaultServicer_to_server(service, server),
        ) as server:
            announce(ready_fd, address=server.address)
            _log.info("vault serves", extra={"address": server.address})
            await stop.wait()
