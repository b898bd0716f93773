"""The brain process: its parts, wired, from start to stop."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import grpc
import msgspec

from brain import harness
from brain.daemons.admission import HEARTBEAT, Admission
from brain.daemons.diary import Diary
from brain.daemons.directory import Directory
from brain.daemons.fleet import ORPHAN_MARGIN, Fleet
from brain.daemons.hands_at import Peers
from brain.daemons.introduction import Introduction
from brain.daemons.links import Links
from brain.daemons.people import People
from brain.daemons.planned import PlannedEnds
from brain.daemons.presence import Presence
from brain.daemons.relay import HandRelay
from brain.daemons.returned import Returns
from brain.daemons.unasked import Hearing
from brain.enrollment import EnrollmentService
from brain.mcp.grants import Door
from brain.mcp.proxy import Proxy
from brain.models.model import Model
from brain.models.settings import Provider, by_vault, read_providers
from brain.orchestrator import OrchestratorService
from brain.scheduler import Scheduler
from brain.session.leases import LeaseKeeper
from brain.session.log import Appender
from brain.session.watch import WatchHub
from carpal.client import dial
from carpal.errors import refuse
from carpal.identity import Identity, Role, server_name
from carpal.own_identity import through_vault
from carpal.process import collect_seldom, until_stopped
from carpal.ready import announce
from carpal.renewal import Renewal
from carpal.revocations import Revocations
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import IdentityFiles, server_credentials
from carpal.trust_watch import REVOCATIONS, following
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
    vault_mcp: str = "127.0.0.1:7444"
    """The vault's listener for brains, through which sessions reach MCP servers."""
    lease_term: Annotated[float, msgspec.Meta(ge=0.5, le=60)] = 10.0
    """Seconds a session waits at most, when this brain dies, less 2."""
    heartbeat: Annotated[float, msgspec.Meta(ge=0.1, le=15)] = HEARTBEAT
    """Seconds between heartbeats on a link; after silence of three it is over at both ends."""
    orphan_margin: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = ORPHAN_MARGIN
    """Seconds past its orphan deadline after which a hand out of reach has ended itself."""
    link_age: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """Seconds after which a daemon is asked to dial anew, less up to a tenth; 0 is never."""
    provider: str = "anthropic"
    """Which provider answers the agents that name none."""
    providers: dict[str, Any] = {}
    """`[providers.NAME]`: see docs/reference/models.md."""
    hand_idle: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 600.0
    """Seconds an idle session keeps its hands."""
    sessions_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000
    """Sessions driven at once; more wait until one is idle. Each takes memory until it is, less
    than a megabyte beside what its log holds, and mostly it waits for the model or a hand."""


async def run(config: BrainConfig, state: Path, stop: asyncio.Event, ready_fd: int | None) -> None:
    """Run a brain until `stop`; then hand its sessions over."""
    providers = read_providers(config.providers)
    if config.provider not in providers:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"provider: there is no {config.provider!r}",
            action=f"use one of: {', '.join(sorted(providers))}, or add [providers.NAME]",
        )
    files = IdentityFiles(state / "brain" / config.name / "identity")
    me = _check(files, config)
    harness.load(harness.DEFAULT)
    await Model.warm()
    collect_seldom()
    async with AsyncExitStack() as stack:
        sessions = session_pb2_grpc.SessionStub(
            await stack.enter_async_context(dial(config.sessiond, Role.SESSIOND, files))
        )
        vault = vault_pb2_grpc.VaultStub(
            await stack.enter_async_context(dial(config.vault, Role.VAULT, files))
        )
        renewal = through_vault(files, config.vault)
        kept = state / "brain" / config.name / REVOCATIONS
        trust = await stack.enter_async_context(
            following(config.vault, files, kept, changed=renewal.hurry)
        )
        stack.push_async_callback((peers := Peers(files)).close)
        model = Model(_by_vault(providers, config, files), config.provider)
        stack.push_async_callback(model.close)
        if why := await model.why_not():
            log.warning("no model for agents that name no provider", extra={"why": why})
        proxy = await stack.enter_async_context(Proxy(config.vault_mcp, files))
        keeper = LeaseKeeper(sessions, config.lease_term)
        hub, appender, directory = WatchHub(), Appender(sessions), Directory(sessions)
        planned = PlannedEnds(files.identity, config.link_age)
        links = Links(directory, keeper, me, planned)
        fleet = Fleet(directory, links, peers, me, config.orphan_margin)
        returns = Returns(fleet, sessions)
        diary = Diary(fleet, sessions, me)
        hearing = Hearing(fleet, sessions, me)
        people = People(sessions, fleet, diary, peers)

        def unsettled(daemon: str, workspace: str) -> None:
            returns.came(daemon, workspace)
            diary.came(daemon, workspace)

        introduction = Introduction(files, trust.revocations)
        introduction.on_change(links.tell_revocations)
        admission = Admission(
            fleet,
            me,
            introduction,
            heartbeat=config.heartbeat,
            unsettled=unsettled,
            linked=hearing.came,
        )
        presence = Presence(keeper, config.name)
        orchestrator = OrchestratorService(
            sessions,
            fleet,
            admission,
            hub,
            peers,
            people=people,
            me=me,
            lease_left=presence.left,
            providers=providers,
            revocations=trust.revocations,
        )
        enrollment = EnrollmentService(
            vault, lambda: directory.brains, files, trust.revocations, admission.gate.word
        )
        scheduler = Scheduler(
            sessions,
            keeper,
            appender,
            fleet,
            hub,
            model=model,
            vault=Door(vault, proxy),
            hand_idle=config.hand_idle,
            sessions_max=config.sessions_max,
        )
        services = _Services(orchestrator, HandRelay(fleet, people), enrollment, links)
        if not await trust.first(stop):
            return
        address, enroll = await _listen(stack, config, files, services, trust.revocations)
        keeper.address = config.advertise or address
        presence.attributes["enroll"] = config.advertise_enroll or enroll

        def ready() -> None:
            announce(ready_fd, address=keeper.address, name=me.name, **presence.attributes)
            log.info("brain serves", extra={"address": keeper.address, "brain": me.name})

        parts = _Parts(
            keeper, appender, fleet, presence, scheduler, renewal, returns, diary, hearing
        )
        await _work(stop, parts, ready)


class _Services(NamedTuple):
    orchestrator: OrchestratorService
    relay: HandRelay
    enrollment: EnrollmentService
    links: Links


class _Parts(NamedTuple):
    keeper: LeaseKeeper
    appender: Appender
    fleet: Fleet
    presence: Presence
    scheduler: Scheduler
    renewal: Renewal
    returns: Returns
    diary: Diary
    hearing: Hearing


def _by_vault(
    providers: Mapping[str, Provider], config: BrainConfig, files: IdentityFiles
) -> dict[str, Provider]:
    own = {"ca_bundle": files.ca, "client_certificate": files.certificate, "client_key": files.key}
    name = server_name(Role.VAULT, files.identity().trust_domain)
    shown = {setting: str(path) for setting, path in own.items()}
    return by_vault(providers, config.vault_mcp, name, shown)


def _check(files: IdentityFiles, config: BrainConfig) -> Identity:
    me = files.load_valid().identity
    if me.role is not Role.BRAIN or me.name != config.name:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"the identity in {files.certificate.parent} is {me.uri}, not brain {config.name!r}",
            action="give the --name of its certificate, or issue one with `carpal vault issue`",
        )
    return me


async def _listen(
    stack: AsyncExitStack,
    config: BrainConfig,
    files: IdentityFiles,
    services: _Services,
    revocations: Revocations,
) -> tuple[str, str]:
    """Serve both ports; their addresses."""

    def register(to: grpc.aio.Server) -> None:
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(services.orchestrator, to)
        hand_pb2_grpc.add_HandServicer_to_server(services.relay, to)

    def register_enrollment(to: grpc.aio.Server) -> None:
        enrollment_pb2_grpc.add_EnrollmentServicer_to_server(services.enrollment, to)

    shown = server_credentials(files, require_client=False)
    # Whatever ends this process in words, the daemons hear of it before they are cut.
    serving = serve(
        config.listen,
        server_credentials(files),
        register,
        revocations=revocations,
        drain=lambda: services.links.leave("the brain stops"),
    )
    enrolling = serve(config.enroll_listen, shown, register_enrollment, authorize=False)
    server = await stack.enter_async_context(serving)
    return server.address, (await stack.enter_async_context(enrolling)).address


async def _work(stop: asyncio.Event, parts: _Parts, ready: Callable[[], None]) -> None:
    """Everything that goes on while the brain serves, and its end in good order."""
    fleet, presence = parts.fleet, parts.presence
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(presence.take())
        await until_stopped(stop, taking)
        if stop.is_set():
            taking.cancel()
            return
        tasks = [
            group.create_task(parts.renewal.run()),
            group.create_task(parts.appender.run()),
            group.create_task(parts.keeper.run()),
            group.create_task(fleet.directory.follow_daemons()),
            group.create_task(fleet.directory.follow_brains(fleet.links.tell_brains)),
            group.create_task(parts.returns.run()),
            group.create_task(parts.diary.run()),
            group.create_task(parts.hearing.run()),
        ]
        lost = refuse(Reason.UNAVAILABLE, "this brain lost its lease")
        present = group.create_task(presence.run(lambda: fleet.links.end(lost)))
        # A session driven before the directory is here would find no daemon anywhere.
        await until_stopped(stop, group.create_task(fleet.directory.loaded.wait()), *tasks)
        driving = group.create_task(parts.scheduler.run())
        ready()
        await until_stopped(stop, driving, present, *tasks)
        # While leases can still be given up: sessions are released, daemons go elsewhere.
        leaving = group.create_task(fleet.links.leave("the brain stops"))
        driving.cancel()
        await asyncio.gather(driving, leaving, return_exceptions=True)
        present.cancel()
        await presence.leave()
        for task in tasks:
            task.cancel()
