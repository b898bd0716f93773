"""The vault as a process: its files, its store, its server, until it is told to stop."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

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
from carpal.trust_watch import REVOCATIONS
from carpal.v1 import vault_pb2_grpc
from carpal.v1.types_pb2 import SignedBytes
from vault.door import Door, door
from vault.files import VaultFiles
from vault.handed_in import handed_in
from vault.hardening import harden
from vault.mcp_listener import serve_mcp
from vault.seal.seals import Given, SealKind
from vault.service import VaultService
from vault.sources.configured import configured
from vault.sources.sources import Sources

_log = logging.getLogger(__name__)

NAME = "vault"
"""There is one vault in a trust domain."""
AGAIN_SECONDS = 30.0
"""Between tries of a key service that did not answer."""


class VaultConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `carpal vault run` may be told."""

    state_dir: Path = msgspec.field(default_factory=state_dir)
    listen: str = "127.0.0.1:7443"
    mcp_listen: str = "127.0.0.1:7444"
    """Where brains reach MCP servers."""
    sources: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Secret managers of the owner's, by name; in the file alone."""
    passphrase_file: Path | None = None
    seal_fd: int | None = None


def given(config: VaultConfig) -> Given:
    """What opens the seal, as far as whoever starts the vault hands it in."""
    return handed_in(config.passphrase_file, config.seal_fd)


def now() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


@contextmanager
def open_service(
    files: VaultFiles, clock: Callable[[], datetime] = now, sources: Sources | None = None
) -> Iterator[VaultService]:
    """The service over the vault's own files, held against any second vault, and open.

    Raises why it does not open.
    """
    with door(files, clock, sources) as it:
        it.start()
        _ = it.parts
        yield VaultService(it)


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
    harden()
    files = VaultFiles(config.state_dir, given(config))
    identity = files.identity(Role.VAULT, NAME)
    with door(files, now, configured(config.sources)) as it:
        it.start()
        service = VaultService(it)
        renewal = own_renewal(service, identity)
        if it.is_open:
            if identity.load().identity.expired(now()):
                await renewal.renew()  # it was off for longer than a day
            await service.look()
        else:
            _take_last_list(service, identity)
        async with (
            serve(
                config.listen,
                server_credentials(identity),
                lambda server: vault_pb2_grpc.add_VaultServicer_to_server(service, server),
                revocations=service.revocations,
            ) as server,
            serve_mcp(config.mcp_listen, identity, service) as mcp,
        ):
            working = [asyncio.create_task(_work(service, identity, renewal))]
            if not it.is_open:
                working.append(asyncio.create_task(_try_again(it)))
            announce(ready_fd, address=server.address, mcp=mcp)
            _log.info(
                "vault serves",
                extra={"address": server.address, "mcp": mcp, "sealed": not it.is_open},
            )
            try:
                await until_stopped(stop, *working)
            finally:
                for task in working:
                    task.cancel()


async def _work(service: VaultService, identity: IdentityFiles, renewal: Renewal) -> None:
    """Once it is open: renew its own certificate, and follow what commands change."""
    await service.door.opened()
    await service.look()
    async with kept_renewed(renewal), asyncio.TaskGroup() as group:
        group.create_task(service.follow())
        group.create_task(service.rotate())
        group.create_task(_trust(service, identity, renewal.hurry))


async def _try_again(it: Door) -> None:
    """A key service may answer by now; else nothing opens by itself. Until it is stopped."""
    while True:
        await asyncio.sleep(AGAIN_SECONDS)
        if it.seal_kind == SealKind.KMS and not it.is_open:
            with contextlib.suppress(CarpalError):  # it is logged there
                await asyncio.to_thread(it.unseal, b"")


def _take_last_list(service: VaultService, identity: IdentityFiles) -> None:
    """Who is revoked, as it was told last: also while the vault is sealed."""
    with contextlib.suppress(OSError, DecodeError, CarpalError):
        told = SignedBytes.FromString((identity.directory.parent / REVOCATIONS).read_bytes())
        service.revocations.take(told, identity.ca.read_bytes())


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
