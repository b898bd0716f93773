"""The daemon as a process: its identity, its hands, its link, until it is told to stop."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from carpal import __version__, logs
from carpal.config import state_dir
from carpal.errors import CarpalError, refuse
from carpal.identity import Role
from carpal.notify import Notify
from carpal.process import until_stopped
from carpal.proof import Token
from carpal.proxy import Way
from carpal.ready import announce
from carpal.renewal import Renewal
from carpal.revocations import proves
from carpal.status import Reason
from carpal.tls import Shown
from carpal.v1 import orchestrator_pb2 as pb
from hands import types
from hands.contract import HandType
from hands.daemon import Daemon
from hands.draining import calls_over
from hands.enroll import Links, asking, enroll, links_path
from hands.files import HandFiles, boot_id
from hands.inventory import Inventory, open_inventory
from hands.journal import Journal
from hands.journal_file import journal_errors
from hands.link.brain_check import BrainCheck
from hands.local import notes, routes, server
from hands.local.status import Standing
from hands.managed import Managed
from hands.owner.gate import audited
from hands.owner.policy_file import PolicyFile
from hands.owner.policy_known import say_unknown
from hands.reloading import Reloading
from hands.service import HandService

log = logging.getLogger(__name__)

_REMEMBERED = 4
"""Addresses of brains kept beside those that exist now."""
_GOODBYE = 3.0
"""Seconds for the link to end in good order."""


class HandConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `carpal hand run` may be told."""

    state_dir: Path = msgspec.field(default_factory=state_dir)
    hands_max: int = 64
    """Hands that may exist at once."""
    labels: dict[str, str] = {}
    """Hints for placement; they decide nothing that matters."""
    reconnect_max: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 60.0
    """Seconds that it waits at most before it dials again, when links fail again and again."""
    proxy: str = ""
    """URL of the HTTP proxy to dial out by, or `none`; empty leaves it to the environment."""
    policy: Path | None = None
    """The file of what the machine's owner allows; without it, /etc/carpal/policy.toml if there."""
    sandbox: types.Sandbox = "auto"
    """Whether process hands get a sandbox: where one can be made, never, or else no hand."""
    stop_wait: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 10.0
    """Seconds that calls which run may take to end once the daemon is told to."""
    log_level: logs.Level = "info"
    """What is logged; read anew on SIGHUP, and so is the next."""
    log_levels: dict[str, logs.Level] = {}
    """Levels of single loggers, such as `hands.daemon`, by name."""
    sockets: dict[str, Path] = {}
    """Hand servers of someone's own: the name of a hand type, and the unix socket it is at."""


async def run(
    config: HandConfig,
    stop: asyncio.Event,
    *,
    token: Token | None = None,
    ready_fd: int | None = None,
    hand_types: Mapping[str, HandType] | None = None,
    reread: Callable[[], HandConfig] | None = None,
    settings: Path | None = None,
) -> None:
    """Serve until `stop` is set; hands and their calls go on after it.

    `token` is used when there is no valid identity, or one for another brain. `reread` gives the
    settings again, on SIGHUP; without it that signal is left alone. `settings` is their file, if
    there is one.
    """
    files = HandFiles(config.state_dir)
    policy = PolicyFile(config.policy)
    way = Way(config.proxy)
    standing = Standing(config.hands_max, settings)
    if token is None:
        files.check_enrolled()
    async with AsyncExitStack() as held:
        managed = Managed(Notify(), standing)
        reloading = Reloading(reread or (lambda: config))
        if reread is not None:
            held.enter_context(reloading.listening())
        held.enter_context(files.only_process())
        await held.enter_async_context(server.answering(files.folder, routes.routes(standing)))
        held.enter_context(notes.noted(config.state_dir, config.sockets))
        if runtime := os.environ.get("RUNTIME_DIRECTORY"):
            held.enter_context(server.reachable_at(Path(runtime, "hand.sock"), files.folder))
        standing.link.doing("it enrols")
        await _identify(files, token, way)
        # Valid or not: one that is over is renewed by its key, and a clock may yet be set.
        me = files.identity.load().identity
        if me.role is not Role.DAEMON:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"the identity in {files.identity_dir} is {me.uri}, not a daemon's",
                action="enrol with `carpal hand enroll`",
            )
        gate = held.enter_context(closing(audited(files.folder, policy)))
        gate.started(__version__)
        standing.link.doing("it takes up the hands it had")
        welcomes = _Welcomes(files, ready_fd, me.name)
        _say_way(way, (*welcomes.brains(), welcomes.enrollment()))
        with (
            journal_errors(files.journal),
            closing(Journal(files.journal, me.name)) as journal,
        ):
            async with open_inventory(
                journal=journal,
                types=types.installed(config.sandbox, config.sockets)
                if hand_types is None
                else hand_types,
                folder=files.hands,
                boot_id=boot_id(),
                hands_max=config.hands_max,
                counts=standing.counts,
                gate=gate,
            ) as inventory:

                async def relink(shown: Shown) -> None:
                    await daemon.relink(shown)

                renewal = Renewal(files.identity, asking(welcomes.enrollment, way), relink)
                standing.known(me.name, inventory, renewal.shown)
                daemon = Daemon(
                    renewal.shown,
                    HandService(inventory, me.name, me.workspace),
                    inventory,
                    labels=config.labels,
                    brains=welcomes.brains,
                    on_brains=welcomes.know,
                    welcomed=welcomes.welcomed,
                    refused=lambda error: _look_at(error, renewal, files),
                    reconnect_max=config.reconnect_max,
                    way=way,
                    status=standing.link,
                    check=BrainCheck(files.revoked),
                )
                reloading.hooks += [
                    lambda again: logs.levels(again.log_level, again.log_levels),
                    lambda again: _say_fixed(config, again),
                ]
                reloading.always += [gate.reload, lambda: daemon.refresh(renewal.shown())]
                gate.changed.append(lambda policy: say_unknown(policy, inventory.types))
                say_unknown(gate.policy, inventory.types)
                managed.ready()
                await _serve(
                    daemon,
                    renewal,
                    stop,
                    lambda: _drain(inventory, managed, config.stop_wait),
                    standing.lag.run(),
                    managed.run(),
                    reloading.run(managed),
                )


async def _serve(
    daemon: Daemon,
    renewal: Renewal,
    stop: asyncio.Event,
    drain: Callable[[], Awaitable[None]],
    *also: Coroutine[None, None, None],
) -> None:
    async with asyncio.TaskGroup() as group:
        linking = group.create_task(daemon.run())
        renewing = group.create_task(renewal.run())
        others = [group.create_task(each) for each in also]
        try:
            await until_stopped(stop, linking, renewing, *others)
            # The link, its heartbeats and the renewal go on meanwhile.
            await drain()
            if daemon.stop("the daemon stops"):
                await asyncio.wait({linking}, timeout=_GOODBYE)
        finally:
            for task in (linking, renewing, *others):
                task.cancel()


async def _drain(inventory: Inventory, managed: Managed, limit: float) -> None:
    """Take no new hands, and wait for the calls that run. A second signal cuts this short."""
    inventory.draining = True  # of this process: the next one takes new hands
    running = sum(len(keeper.open) for keeper in inventory.keepers.values())
    managed.stopping(f"stops; waits {limit:g} s at most for {running} calls that run")
    log.info("stops", extra={"calls": running, "waits": limit})
    if not await calls_over(inventory, limit):
        log.info("calls go on without the daemon; the next start takes them up")


def _say_fixed(before: HandConfig, now: HandConfig) -> None:
    """Log which settings changed that are not taken up while the daemon runs."""
    changed = [
        name
        for name in HandConfig.__struct_fields__
        if not name.startswith("log_") and getattr(before, name) != getattr(now, name)
    ]
    if changed:
        log.warning("changed, and taken up at the next start", extra={"settings": changed})


def _look_at(error: CarpalError, renewal: Renewal, files: HandFiles) -> None:
    """What the daemon does about a link that failed. Raises the error when that ends it."""
    if error.reason in (Reason.CERTIFICATE_EXPIRED, Reason.CERTIFICATE_ENDING):
        renewal.hurry()  # the machine slept past it, say
    if error.reason is not Reason.IDENTITY_REVOKED:
        return
    try:
        me = renewal.shown().identity()
        proven = proves(error, me, files.identity.ca.read_bytes())
    except (OSError, CarpalError, ValueError) as unread:
        log.warning("said to be revoked, and that cannot be checked", extra={"why": str(unread)})
        return
    if proven:
        raise error  # for ever: what runs here ends by its orphan deadline
    if error.fields.get("identity") == me.uri:
        # Only what the vault signed ends a daemon: one brain must not end all of them.
        log.warning("said to be revoked, and the vault did not sign it", extra={"why": str(error)})


def _say_way(way: Way, addresses: Sequence[str]) -> None:
    """Log which way the daemon dials. Raises CONFIG_INVALID before it does, not at each dial."""
    for address in dict.fromkeys(addresses):
        if proxy := way.to(address):
            about = {"to": address, "proxy": proxy.address, "by": proxy.source}
            log.info("dials by a proxy", extra=about)


async def _identify(files: HandFiles, token: Token | None, way: Way) -> None:
    """Enrol when that is needed; what is valid is never given up because it failed."""
    if token is None:
        return
    valid = _has_identity(files, valid=True)
    if valid and Links.load(links_path(files.identity_dir)).enrollment == token.address:
        return  # enrolled with it, or with another of this brain: used once is enough
    try:
        enrolled = await enroll(token, files.identity_dir, way)
    except CarpalError as error:
        if not _has_identity(files):
            raise
        # Valid, or renewed by its key: never given up because a token was used before.
        log.warning("token not used; the identity stays", extra={"why": str(error)})
    else:
        log.info("enrolled", extra={"identity": enrolled.identity.uri})


def _has_identity(files: HandFiles, *, valid: bool = False) -> bool:
    if not files.identity.exists():
        return False
    try:
        identity = files.identity.load().identity
    except CarpalError as error:
        log.warning("identity not usable", extra={"why": str(error)})
        return False
    return not (valid and identity.expired(datetime.now(UTC)))


class _Welcomes:
    """Where to dial, as the brains say; and the first welcome, announced."""

    def __init__(self, files: HandFiles, ready_fd: int | None, name: str) -> None:
        self._path = links_path(files.identity_dir)
        self._links = Links.load(self._path)
        if not self._links.brains:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"{self._path} names no brain",
                action="enrol with `carpal hand enroll`",
            )
        self._ready_fd = ready_fd
        self._name = name

    def brains(self) -> list[str]:
        """`host:port` each."""
        return list(self._links.brains)

    def enrollment(self) -> str:
        """Where certificates are renewed, `host:port`."""
        return self._links.enrollment

    def know(self, now: Sequence[str]) -> None:
        """Dial these first, then the last few known before: all may be gone at once."""
        brains = tuple(dict.fromkeys((*now, *self._links.brains)))[: len(now) + _REMEMBERED]
        if brains != self._links.brains:
            self._links = Links(brains, self._links.enrollment)
            try:
                self._links.save(self._path)
            except OSError as error:  # a full disk ends no link
                log.warning("brains not kept", extra={"why": str(error)})

    def welcomed(self, welcome: pb.Welcome) -> None:
        """Say ready, the first time."""
        fd, self._ready_fd = self._ready_fd, None
        announce(fd, daemon_id=self._name, brain=welcome.brain)
