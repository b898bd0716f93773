"""`carpal fleet`: the daemons that serve a workspace, who is let in, and who no more."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from google.protobuf import duration_pb2

from carpal import process
from carpal.client import rpc_errors
from carpal.durations import duration
from carpal.errors import CarpalError, invalid, refuse
from carpal.identity import Role, identity_uri
from carpal.ids import check_name, new_id
from carpal.operator.connection import (
    ANSWER_SECONDS,
    Found,
    check_address,
    connect,
    connect_vault,
    operator_options,
    vault_option,
)
from carpal.operator.exporting import check_free
from carpal.operator.fleet_rows import daemon_row, daemon_text, details, details_text
from carpal.operator.screen import notice
from carpal.proof import SECRET_BYTES, Token
from carpal.status import Reason
from carpal.tls import write_file
from carpal.v1 import orchestrator_pb2, vault_pb2

if TYPE_CHECKING:
    from carpal.v1.orchestrator_pb2_grpc import OrchestratorAsyncStub


@click.group()
def fleet() -> None:
    """Daemons: list and show them, let them in, drain, quarantine, revoke them."""


@fleet.command("ls")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@operator_options
def ls(*, found: Found, as_json: bool) -> None:
    """List the workspace's daemons, at whichever brain holds their link."""

    async def ask(brain: "OrchestratorAsyncStub") -> orchestrator_pb2.ListDaemonsResponse:
        request = orchestrator_pb2.ListDaemonsRequest()
        return await brain.ListDaemons(request, timeout=ANSWER_SECONDS)

    async def main(stop: asyncio.Event) -> None:
        async with connect(found) as operator:
            answer: orchestrator_pb2.ListDaemonsResponse = await operator.ask_a_brain(
                ask, no_brain="no brain is live, so nobody knows the daemons"
            )
        for info in sorted(answer.daemons, key=lambda info: info.daemon_id):
            row = daemon_row(info)
            click.echo(json.dumps(row) if as_json else daemon_text(row, _today()))
        if not answer.daemons and not as_json:
            click.echo("no daemons yet: make a token with `carpal fleet token`", err=True)

    process.run(main)


@fleet.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def show(*, found: Found, name: str, as_json: bool) -> None:
    """Show daemon NAME: who it is, its link, versions, types, hands, and what went wrong last.

    It is asked now how its types stand and which hands it has.
    """
    request = orchestrator_pb2.GetDaemonRequest(daemon_id=check_name(name, "NAME"))

    async def ask(brain: "OrchestratorAsyncStub") -> orchestrator_pb2.GetDaemonResponse:
        return await brain.GetDaemon(request, timeout=ANSWER_SECONDS)

    async def main(stop: asyncio.Event) -> None:
        async with connect(found) as operator:
            told: orchestrator_pb2.GetDaemonResponse = await operator.ask_a_brain(
                ask, no_brain="no brain is live, so nobody knows the daemons"
            )
        shown = details(told, datetime.now(UTC))
        click.echo(json.dumps(shown) if as_json else details_text(shown, _today()))

    process.run(main)


def _today() -> str:
    return f"{datetime.now(UTC):%F}"


@fleet.command()
@click.argument("name")
@click.option("--reason", default="", help="Why, for the daemon's log.")
@click.option("--lift", is_flag=True, help="Take new hands again.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def drain(*, found: Found, name: str, reason: str, lift: bool, as_json: bool) -> None:
    """Stop new hands on daemon NAME; those it has go on.

    The daemon stays drained, also through restarts, until --lift. It can be
    stopped without anybody noticing once it has no hands.
    """
    request = orchestrator_pb2.DrainDaemonRequest(
        daemon_id=check_name(name, "NAME"), reason=reason, lift=lift
    )

    async def ask(brain: "OrchestratorAsyncStub") -> orchestrator_pb2.DaemonInfo:
        return (await brain.DrainDaemon(request, timeout=ANSWER_SECONDS)).daemon

    _decide(found, ask, as_json=as_json)


@fleet.command()
@click.argument("name")
@click.option("--reason", default="", help="Why; the daemon is told.")
@click.option("--lift", is_flag=True, help="Let it link again.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
def quarantine(*, found: Found, name: str, reason: str, lift: bool, as_json: bool) -> None:
    """Let no machine link as daemon NAME, at any brain, until --lift.

    What runs there goes on until its orphan deadline. --lift also lets in what
    was refused as a clone: stop one of the two machines first.
    """
    request = orchestrator_pb2.QuarantineDaemonRequest(
        daemon_id=check_name(name, "NAME"), reason=reason, lift=lift
    )

    async def ask(brain: "OrchestratorAsyncStub") -> orchestrator_pb2.DaemonInfo:
        return (await brain.QuarantineDaemon(request, timeout=ANSWER_SECONDS)).daemon

    _decide(found, ask, as_json=as_json)


def _decide(
    found: Found,
    ask: "Callable[[OrchestratorAsyncStub], Awaitable[orchestrator_pb2.DaemonInfo]]",
    *,
    as_json: bool,
) -> None:
    """Ask a brain for what is decided of a daemon, and show the daemon as it is then."""

    async def main(stop: asyncio.Event) -> None:
        async with connect(found) as operator:
            daemon: orchestrator_pb2.DaemonInfo = await operator.ask_a_brain(
                ask, no_brain="no brain is live, so nobody reaches the daemons"
            )
        row = daemon_row(daemon)
        click.echo(json.dumps(row) if as_json else daemon_text(row, _today()))

    process.run(main)


@fleet.command()
@click.option("--name", required=True, help="Name the daemon gets.")
@click.option("--pool", default="", help="Pool it belongs to.")
@click.option("--ttl", default="1h", show_default=True, help="1m to 24h: how long it is good.")
@click.option("--enroll", metavar="HOST:PORT", help="Where the machine enrols.  [a live brain's]")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write the token here, for its owner's eyes only, instead of to stdout.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@operator_options
@vault_option
def token(
    *,
    found: Found,
    name: str,
    pool: str,
    ttl: str,
    enroll: str | None,
    out: Path | None,
    force: bool,
) -> None:
    """Make a token with which one machine enrols, once.

    The token holds a secret: move it as you would move a password.
    """
    check_name(name, "--name")
    if pool:
        check_name(pool, "--pool")
    lifetime = parse_ttl(ttl)
    if enroll is not None:
        check_address(enroll, "--enroll")
    if out is not None and not force:
        check_free(out)  # before a token is made that nobody gets

    async def main(stop: asyncio.Event) -> None:
        taken = await _who_has(found, name)
        made = await make_token(found, name=name, pool=pool, ttl=lifetime, enroll=enroll)
        line = made.text() + "\n"
        if out is None:
            click.echo(line, nl=False)
        else:
            try:
                write_file(out, line.encode())
            except OSError as error:
                raise invalid("--out", f"{out}: {error.strerror}") from None
        if taken:
            notice(
                f"{taken}; while it is linked, a second machine of its name is refused as a clone"
            )
        notice(
            f"good once within {ttl}, for daemon {name!r}, enrolling at {made.address}; "
            f"on that machine: carpal hand enroll --token-file {out.name if out else '-'}"
            + ("" if out else ", and paste it there")
        )

    process.run(main)


@fleet.command()
@click.argument("name")
@click.option("--reason", default="", help="Why; whoever is refused is shown it.")
@click.option("--operator", "role", flag_value=Role.OPERATOR, help="NAME is an operator's.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@operator_options
@vault_option
def revoke(*, found: Found, name: str, reason: str, role: Role | None, as_json: bool) -> None:
    """Revoke a daemon: its links are cut within seconds, its certificates never renew.

    Its machine may enrol anew, with a new token. Unused tokens for the name are
    made useless too.
    """
    who = identity_uri(
        found.files.identity().trust_domain, role or Role.DAEMON, check_name(name, "NAME")
    )

    async def main(stop: asyncio.Event) -> None:
        async with connect_vault(found) as vault:
            with rpc_errors(f"vault at {found.vault}"):
                request = vault_pb2.RevokeIdentityRequest(identity=who, reason=reason)
                await vault.RevokeIdentity(request, timeout=ANSWER_SECONDS)
        click.echo(json.dumps({"revoked": who}) if as_json else f"revoked {who}")
        if role is None:
            notice(f"to let its machine in again: carpal fleet token --name {name}")

    process.run(main)


async def make_token(
    found: Found, *, name: str, pool: str, ttl: timedelta, enroll: str | None = None
) -> Token:
    """A token whose secret is made here and registered with the vault."""
    address = enroll or await _enrolment_address(found)
    token_id, secret = new_id("tok"), secrets.token_bytes(SECRET_BYTES)
    lifetime = duration_pb2.Duration()
    lifetime.FromTimedelta(ttl)
    async with connect_vault(found) as vault:
        with rpc_errors(f"vault at {found.vault}"):
            answer = await vault.CreateToken(
                vault_pb2.CreateTokenRequest(
                    token_id=token_id, secret=secret, name=name, pool=pool, ttl=lifetime
                ),
                timeout=ANSWER_SECONDS,
            )
    return Token(address, tuple(answer.ca_pins), token_id, secret)


async def _who_has(found: Found, name: str) -> str:
    """What is known of a daemon that has the name, in words; empty when there is none.

    Asked only to warn: what cannot be asked is passed over.
    """

    async def daemons(brain: "OrchestratorAsyncStub") -> orchestrator_pb2.ListDaemonsResponse:
        request = orchestrator_pb2.ListDaemonsRequest()
        return await brain.ListDaemons(request, timeout=ANSWER_SECONDS)

    with suppress(CarpalError):
        async with connect(found) as operator:
            answer = await operator.ask_a_brain(daemons, no_brain="")
        for info in answer.daemons:
            if info.daemon_id == name and info.state != "gone":
                return f"daemon {name!r} is {info.state} at {info.brain}"
    with suppress(CarpalError):
        async with connect_vault(found) as vault:
            with rpc_errors(f"vault at {found.vault}"):
                request = vault_pb2.ListTokensRequest()
                tokens = (await vault.ListTokens(request, timeout=ANSWER_SECONDS)).tokens
        if any(token.name == name and token.HasField("used") for token in tokens):
            return f"a machine enrolled as {name!r} before"
    return ""


def parse_ttl(text: str) -> timedelta:
    """`90s`, `30m` or `12h`; INVALID_FIELD otherwise, or outside 1 minute to 24 hours."""
    ttl = duration(text, "--ttl")
    if not timedelta(minutes=1) <= ttl <= timedelta(hours=24):
        raise invalid("--ttl", f"{text} is not between 1m and 24h")
    return ttl


async def _enrolment_address(found: Found) -> str:
    async with connect(found) as operator:
        for lease in await operator.brains():
            if address := lease.attributes.get("enroll"):
                return address
    raise refuse(
        Reason.UNREACHABLE,
        "no live brain says where machines enrol",
        action="start a brain, or give --enroll HOST:PORT",
    )
