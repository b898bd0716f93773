"""The brain process: its parts, wired, from start to stop."""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import msgspec

from brain.directory import Directory
from brain.enrollment import EnrollmentService
from brain.fleet import Fleet
from brain.hands_at import Peers
from brain.leases import LeaseKeeper
from brain.log import Appender
from brain.model import Model
from brain.orchestrator import OrchestratorService
from brain.presence import Presence
from brain.relay import HandRelay
from brain.runner import DEFAULT_HARNESS, load_harness
from brain.scheduler import Scheduler
from brain.watch import WatchHub
from carpal.client import dial
from carpal.errors import CarpalError, refuse
from carpal.identity import Role
from carpal.process import until_stopped
from carpal.ready import announce
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, server_credentials
from carpal.v1 import (
    enrollment_pb2_grpc,
    hand_pb2_grpc,
    orchestrator_pb2_grpc,
    session_pb2_grpc,
    vault_pb2_grpc,
)

log = logging.getLogger(__name__)


class BrainConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A brain's settings; each is a flag, a `CARPAL_*` variable or a key of brain.toml."""

    name: str = "brain-1"
    listen: str = "127.0.0.1:7441"
    """Where daemons and other brains dial."""
    enroll_listen: str = "127.0.0.1:7442"
    """Where machines enrol; server TLS only."""
    advertise: str = ""
    """`host:port` to be dialled at, when it is not `listen`."""
    advertise_enroll: str = ""
    sessiond: str = "127.0.0.1:7440"
    vault: str = "127.0.0.1:7443"
    lease_term: float = 10.0
    """Seconds a session waits at most, when this brain dies, less 2."""
    hand_idle: float = 600.0
    """Seconds an idle session keeps its hands."""


async def run(config: BrainConfig, state: Path, stop: asyncio.Event, ready_fd: int | None) -> None:
    """Run a brain until `stop`; then hand its sessions over."""
    files = IdentityFiles(state / "brain" / config.name / "identity")
    me = files.identity()
    if me.role is not Role.BRAIN or me.name != config.name:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"the identity in {files.certificate.parent} is {me.uri}, not brain {config.name!r}",
            action="give the --name of its certificate, or issue one with `carpal vault issue`",
        )
    async with AsyncExitStack() as stack:
        sessions = session_pb2_grpc.SessionStub(
            await stack.enter_async_context(dial(config.sessiond, Role.SESSIOND, files))
        )
        vault = vault_pb2_grpc.VaultStub(
            await stack.enter_async_context(dial(config.vault, Role.VAULT, files))
        )
        peers = Peers(files)
        stack.push_async_callback(peers.close)
        model = Model()
        stack.push_async_callback(model.close)
        keeper = LeaseKeeper(sessions, config.lease_term)
        appender, hub = Appender(sessions), WatchHub()
        directory = Directory(sessions)
        fleet = Fleet(directory, keeper, peers, me)
        attributes: dict[str, str] = {}
        presence = Presence(keeper, config.name, attributes)
        relay = HandRelay(fleet)
        orchestrator = OrchestratorService(
            sessions, fleet, hub, peers, me=me, lease_left=presence.left
        )
        enrollment = EnrollmentService(vault, lambda: directory.brains)

        def register(to: grpc.aio.Server) -> None:
            orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(orchestrator, to)
            hand_pb2_grpc.add_HandServicer_to_server(relay, to)

        def register_enrollment(to: grpc.aio.Server) -> None:
            enrollment_pb2_grpc.add_EnrollmentServicer_to_server(enrollment, to)

        server = await stack.enter_async_context(
            serve(config.listen, server_credentials(files), register)
        )
        enrolling = await stack.enter_async_context(
            serve(
                config.enroll_listen,
                server_credentials(files, require_client=False),
                register_enrollment,
                authorize=False,
            )
        )
        keeper.address = config.advertise or server.address
        attributes["enroll"] = config.advertise_enroll or enrolling.address
        scheduler = Scheduler(
            sessions, keeper, appender, fleet, hub, model=model, hand_idle=config.hand_idle
        )
        load_harness(DEFAULT_HARNESS)
        await Model.warm()
        await presence.take()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(appender.run()),
                group.create_task(keeper.run()),
                group.create_task(directory.follow_daemons()),
                group.create_task(directory.follow_brains(fleet.tell_brains)),
                group.create_task(presence.run(lambda: fleet.end_links(_lost()))),
            ]
            driving = group.create_task(scheduler.run())
            announce(ready_fd, address=keeper.address, enroll=attributes["enroll"], name=me.name)
            log.info("brain serves", extra={"address": keeper.address, "brain": me.name})
            await until_stopped(stop, driving, *tasks)
            # Sessions first: they are released while leases can still be given up.
            fleet.drain("the brain stops")
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
            fleet.end_links(None)
            await presence.leave()
            for task in tasks:
                task.cancel()


def _lost() -> CarpalError:
    return refuse(Reason.UNAVAILABLE, "this brain lost its lease")
