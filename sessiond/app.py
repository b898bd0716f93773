"""The sessiond process: opens its store, serves it, and stops cleanly."""

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import grpc
import msgspec

from carpal.errors import refuse
from carpal.identity import Role
from carpal.own_identity import kept_renewed, through_vault
from carpal.process import collect_seldom, until_stopped
from carpal.ready import announce
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, server_credentials
from carpal.trust_watch import REVOCATIONS, following
from carpal.v1.session_pb2_grpc import add_SessionServicer_to_server
from sessiond.opening import open_store
from sessiond.parts import running
from sessiond.rules.blobs import BLOB_CAP
from sessiond.service.sessions import SessionService
from sessiond.store import StoreBroken, StoreCorrupt
from sessiond.tickets import Tickets

_log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter from another. The writing thread gives it up at
every statement; at the default, 5 ms, a busy event loop makes each of those wait as long."""


class SessiondConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings; each is a flag, a `CARPAL_*` variable or a key of sessiond.toml."""

    listen: str = "127.0.0.1:7440"
    vault: str = "127.0.0.1:7443"
    """Where it learns who is revoked, and renews its identity."""
    store: str = ""
    """The URL of a PostgreSQL database; empty means the SQLite file in the state folder."""
    blob_cap: Annotated[int, msgspec.Meta(ge=0)] = BLOB_CAP
    """Bytes of one workspace's blobs."""


async def run(
    config: SessiondConfig, state: Path, stop: asyncio.Event, ready_fd: int | None
) -> None:
    """Serve the sessions in `state` until `stop`; what was taken by then is committed."""
    files = IdentityFiles(state / "sessiond" / "identity")
    loaded = files.load_valid()
    if loaded.identity.role is not Role.SESSIOND:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"the identity in {files.directory} is {loaded.identity.uri}, not a sessiond",
            action="issue one with `carpal vault issue sessiond NAME`",
        )
    sys.setswitchinterval(_SWITCH_SECONDS)
    collect_seldom()
    # Beside the loop: it may look over the whole file, or wait for who holds it.
    store = await asyncio.to_thread(open_store, config.store, state)
    async with running(store, loaded.identity.uri, blob_cap=config.blob_cap) as parts:
        service = SessionService(parts, Tickets(files))
        renewal = through_vault(files, config.vault)
        kept = state / "sessiond" / REVOCATIONS

        def register(server: grpc.aio.Server) -> None:
            add_SessionServicer_to_server(service, server)

        async def drain() -> None:
            service.close_streams()  # what was taken is still acknowledged

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(kept_renewed(renewal))
            trust = await stack.enter_async_context(
                following(config.vault, files, kept, changed=renewal.hurry)
            )
            if not await trust.first(stop):
                return
            server = await stack.enter_async_context(
                serve(
                    config.listen,
                    server_credentials(files),
                    register,
                    revocations=trust.revocations,
                    drain=drain,
                )
            )
            timer = asyncio.create_task(parts.deadlines.run())
            sweeper = asyncio.create_task(parts.sweeper.run())
            broken = asyncio.create_task(parts.writer.until_broken())
            announce(ready_fd, address=server.address)
            _log.info("sessiond serves", extra={"address": server.address})
            try:
                await until_stopped(stop, broken, timer, sweeper, parts.following)
            except StoreCorrupt as error:
                raise refuse(
                    Reason.DATA_CORRUPT,
                    str(error),
                    action="restore a backup that is whole: "
                    "`carpal sessiond restore --from FILE --replace`",
                ) from error
            except StoreBroken as error:
                raise refuse(
                    Reason.INTERNAL,
                    str(error),
                    action="check the disk, then start again: what was acknowledged is there",
                ) from error
            finally:
                timer.cancel()
                sweeper.cancel()
                broken.cancel()
        _log.info("sessiond stops")
