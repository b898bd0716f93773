"""Finding and dialling: the operator's identity, sessiond, the vault, and the brains.

Brains are found through sessiond: each holds `brain/<name>` in the lease
table, with the address where it is dialled.
"""

import functools
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from carpal.client import dial, rpc_errors
from carpal.config import STATE_DEFAULT, load, state_dir
from carpal.errors import CarpalError, Unreachable, invalid, refuse
from carpal.identity import Role
from carpal.operator.overview import is_live
from carpal.operator.own import renewed
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import (
    orchestrator_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
    vault_pb2_grpc,
)

if TYPE_CHECKING:
    from carpal.v1.orchestrator_pb2_grpc import OrchestratorAsyncStub
    from carpal.v1.session_pb2_grpc import SessionAsyncStub
    from carpal.v1.vault_pb2_grpc import VaultAsyncStub

ANSWER_SECONDS = 10.0
"""Deadline of an RPC that a person waits for and that does no work."""


class Endpoints(msgspec.Struct, frozen=True):
    """What `operator.toml` may say."""

    sessiond: str = ""
    vault: str = ""


@dataclass(frozen=True)
class Found:
    """Who an operator's command is, and where it goes."""

    files: IdentityFiles
    sessiond: str
    vault: str


def operator_dir(flag: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The operator's part of the state folder; of `carpal dev`'s when only that exists."""
    named = flag is not None or "CARPAL_STATE" in environ
    state = state_dir(flag, environ)
    usual, dev = state / "operator", state / "dev" / "operator"
    return dev if not named and not usual.exists() and dev.exists() else usual


def find(
    *,
    state: Path | None = None,
    identity: Path | None = None,
    sessiond: str | None = None,
    vault: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Found:
    """What the flags say, else the environment, else the state folder. Raises CONFIG_INVALID."""
    folder = operator_dir(state, environ)
    config = folder / "operator.toml"
    endpoints = load(
        Endpoints,
        "operator",
        {"sessiond": sessiond, "vault": vault},
        config if config.exists() else None,
        environ,
    )
    for name, flag in (("sessiond", sessiond), ("vault", vault)):
        check_address(getattr(endpoints, name), name if flag is None else f"--{name}")
    named = environ.get("CARPAL_IDENTITY")
    files = IdentityFiles(identity or (Path(named) if named else folder / "identity"))
    if not files.exists():
        raise refuse(
            Reason.CONFIG_INVALID,
            f"no operator identity in {files.directory}",
            action="start `carpal dev`, make your own with `carpal vault init`, "
            "or give --identity DIR",
        )
    role = files.identity().role
    if role is not Role.OPERATOR:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"the identity in {files.directory} is a {role}'s, not an operator's",
            action="give an operator's with --identity DIR",
        )
    return Found(files, endpoints.sessiond, endpoints.vault)


def check_address(value: str, name: str) -> str:
    """`value`, or INVALID_FIELD when it is neither empty nor `host:port`."""
    host, _, port = value.rpartition(":")
    if value and not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise invalid(name, f"{value!r} is not host:port")
    return value


def operator_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--state-dir`, `--identity` and `--sessiond`, as one `found`."""

    @functools.wraps(command)
    def with_found(*args: Any, found: Callable[[], Found], **kwargs: Any) -> Any:
        return command(*args, found=found(), **kwargs)

    return lazy_operator_options(with_found)


def lazy_operator_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but `found` is to be called: for what may need no operator at all."""

    @click.option(
        "--state-dir", "state", type=click.Path(path_type=Path),
        help=f"State folder, of `carpal dev` if only that exists.  [{STATE_DEFAULT}]",
    )  # fmt: skip
    @click.option(
        "--identity", type=click.Path(path_type=Path),
        help="Folder of the operator's certificate.  [operator/identity in the state folder]",
    )  # fmt: skip
    @click.option(
        "--sessiond", metavar="HOST:PORT",
        help="Where sessiond listens.  [as operator/operator.toml in the state folder says]",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        state: Path | None,
        identity: Path | None,
        sessiond: str | None,
        vault: str | None = None,
        **kwargs: Any,
    ) -> Any:
        found = functools.partial(
            find, state=state, identity=identity, sessiond=sessiond, vault=vault
        )
        return command(*args, found=found, **kwargs)

    return wrapped


vault_option = click.option(
    "--vault", metavar="HOST:PORT",
    help="Where the vault listens.  [as operator/operator.toml in the state folder says]",
)  # fmt: skip
"""For a command that has `operator_options` and speaks to the vault."""


class Operator:
    """An operator connected to sessiond."""

    def __init__(self, found: Found, sessions: "SessionAsyncStub") -> None:
        self.found = found
        self.sessions = sessions
        self.sessiond = f"sessiond at {found.sessiond}"
        """For messages."""

    async def brains(self) -> list[types_pb2.LeaseInfo]:
        """The leases of the brains that live now, by name."""
        with rpc_errors(self.sessiond):
            call = self.sessions.WatchLeases(
                session_pb2.WatchLeasesRequest(prefix="brain/"), timeout=ANSWER_SECONDS
            )
            live: list[types_pb2.LeaseInfo] = []
            try:
                async for answer in call:
                    live += [lease for lease in answer.leases if is_live(lease)]
                    if not answer.more:  # that was the snapshot
                        break
            finally:
                call.cancel()
        return sorted(live, key=lambda lease: lease.resource)

    @asynccontextmanager
    async def brain(self, address: str) -> AsyncIterator["OrchestratorAsyncStub"]:
        """One brain's orchestrator."""
        async with dial(address, Role.BRAIN, self.found.files) as channel:
            yield orchestrator_pb2_grpc.OrchestratorStub(channel)

    async def ask_a_brain(
        self, ask: Callable[["OrchestratorAsyncStub"], Any], *, no_brain: str
    ) -> Any:
        """The answer of the first live brain that gives one; `no_brain` says what fails without."""
        failure: CarpalError = refuse(
            Reason.UNREACHABLE, no_brain, action="start one with `carpal brain run`"
        )
        for lease in await self.brains():
            async with self.brain(lease.address) as stub:
                try:
                    with rpc_errors(f"{lease.resource} at {lease.address}"):
                        return await ask(stub)
                except Unreachable as error:
                    failure = error  # it died a moment ago; another may know
        raise failure


@asynccontextmanager
async def connect(found: Found) -> AsyncIterator[Operator]:
    """Dial sessiond; does not wait for it."""
    if not found.sessiond:
        raise _no_address("sessiond")
    async with (
        renewed(found.files, found.vault),
        dial(found.sessiond, Role.SESSIOND, found.files) as channel,
    ):
        yield Operator(found, session_pb2_grpc.SessionStub(channel))


@asynccontextmanager
async def connect_vault(found: Found) -> AsyncIterator["VaultAsyncStub"]:
    """Dial the vault; does not wait for it."""
    if not found.vault:
        raise _no_address("vault")
    async with (
        renewed(found.files, found.vault),
        dial(found.vault, Role.VAULT, found.files) as channel,
    ):
        yield vault_pb2_grpc.VaultStub(channel)


def _no_address(name: str) -> CarpalError:
    return refuse(
        Reason.CONFIG_INVALID,
        f"no address of {name} is known",
        action=f"give --{name} HOST:PORT or CARPAL_{name.upper()}, "
        "or say it in operator/operator.toml of the state folder",
    )
