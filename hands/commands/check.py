"""`carpal hand check`: hold a hand type to the contract, from outside."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carpal.errors import invalid
from hands.commands.options import CONFIG, settings_of

if TYPE_CHECKING:
    from hands.conformance.group import Verdict


@click.command()
@click.option(
    "--endpoint", metavar="unix:///PATH", help="A Hand server's socket; else ours serves the type."
)
@click.option(
    "--type", "type_name", metavar="T", help="The hand type; of a server, if it has many."
)
@click.option("--hand-config", metavar="JSON", default="{}", help="The config of every hand made.")
@click.option(
    "--call",
    "plain",
    nargs=2,
    metavar="TOOL JSON",
    help="A call that does no harm, for a type whose tools the checks do not know.",
)
@click.option(
    "--long",
    nargs=2,
    metavar="TOOL JSON",
    help="A call that lasts a minute or more, so that it can be cancelled.",
)
@click.option(
    "--says",
    nargs=2,
    metavar="TOOL JSON",
    help="A call that has the hand say something unasked, for a type that claims `events`.",
)
@click.option("--only", "capabilities", multiple=True, metavar="CAPABILITY", help="Repeatable.")
@click.option("--scale", default=1.0, show_default=True, help="How slow the machine is taken.")
@click.option("--list", "listing", is_flag=True, help="Say the checks; makes none.")
@click.option("--verbose", is_flag=True, help="Say each check that was skipped, and why.")
@click.option("--json", "as_json", is_flag=True, help="One object a line, then a summary.")
@CONFIG
def check(  # noqa: PLR0917 - click passes each by name
    endpoint: str | None,
    type_name: str | None,
    hand_config: str,
    plain: tuple[str, str] | None,
    long: tuple[str, str] | None,
    says: tuple[str, str] | None,
    capabilities: tuple[str, ...],
    scale: float,
    listing: bool,
    verbose: bool,
    as_json: bool,
    config_file: Path | None,
) -> int:
    """Make every check of the contract against a hand type, ours or anyone's.

    What a type does not claim is skipped. With --type alone the server that
    hand.toml names for it under [sockets] is checked, else the daemon's own
    service serves it, and is stopped and killed on the way; its hands, and
    what runs in them, end with the checks. Exits 0 when nothing failed, 1 when
    something did, 2 when no hand can be made of its config, 3 when nobody
    answers or the type is not ready here.
    """
    from hands.conformance import given
    from hands.conformance.first import first
    from hands.conformance.own import open_own
    from hands.conformance.run import verdicts
    from hands.conformance.subject import WORKSPACE, reach, socket_of, subject_at
    from hands.conformance.suite import chosen

    checks = chosen(capabilities)
    if listing:
        for one in checks:
            click.echo(f"{one.capability}: {one.sentence}")
        return 0
    if endpoint is None and type_name is None:
        raise click.UsageError("Missing option '--endpoint' or '--type'.")
    path = socket_of(endpoint) if endpoint else _named(type_name or "", config_file)
    config = _object("--hand-config", hand_config)
    call = None if plain is None else (plain[0], _object("--call", plain[1]))
    lasting = None if long is None else (long[0], _object("--long", long[1]))

    saying = None if says is None else (says[0], _object("--says", says[1]))

    skipped = Counter[str]()

    async def make() -> Counter[str]:
        count = Counter[str]()
        async with AsyncExitStack() as held:
            own = None
            if path is None:
                own = await held.enter_async_context(open_own(type_name or "", WORKSPACE))
            at = own.socket if own else path
            assert at is not None
            found = await subject_at(at, type_name, config, own, call, long=lasting, says=saying)
            if path is not None and found.has_units:
                await asyncio.to_thread(
                    _not_given_out, type_name or found.type.type, path, config_file
                )
            given.check(found)
            subject = await first(found, scale, lambda text: click.echo(text, err=True))
            given.check_calls(subject)  # with the tools that a hand listed itself
            judged = await held.enter_async_context(aclosing(verdicts(checks, subject, scale)))
            async for verdict in judged:
                if verdict.verdict == "fail" and (gone := await reach(subject)):
                    raise gone  # the rest would say nothing
                count[verdict.verdict] += 1
                if as_json:
                    click.echo(json.dumps(verdict._asdict()))
                elif verbose or verdict.verdict != "skipped":
                    _say(verdict)
                else:
                    skipped[verdict.capability] += 1
        return count

    count = asyncio.run(make())
    summary = {verdict: count[verdict] for verdict in ("pass", "fail", "skipped")}
    if as_json:
        click.echo(json.dumps({"ok": not summary["fail"], **summary}))
    else:
        if skipped:
            click.echo(f"skipped  {_listed(skipped, ' of ')}   --verbose says each, and why")
        click.echo(_listed(summary, " "))
    return 1 if summary["fail"] else 0


def _named(type_name: str, config_file: Path | None) -> Path | None:
    """The socket by which this machine's daemon has a type; None where none is named for it."""
    from hands.conformance.subject import socket_of

    path = settings_of(None, config_file).sockets.get(type_name)
    return None if path is None else socket_of(f"unix://{path}")


def _not_given_out(type_name: str, path: Path, config_file: Path | None) -> None:
    """UNAVAILABLE when a daemon here gives out the units of a server's type."""
    from hands.local import beside

    beside.not_given_out(settings_of(None, config_file).state_dir, type_name, path)


def _say(verdict: "Verdict") -> None:
    detail = f"   {verdict.detail}" if verdict.detail else ""
    click.echo(f"{verdict.verdict:<8} {verdict.capability}: {verdict.check}{detail}")
    if verdict.change:
        click.echo(f"         change: {verdict.change}")


def _listed(counts: Mapping[str, int], between: str) -> str:
    return ", ".join(f"{number}{between}{what}" for what, number in counts.items())


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise invalid(option, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise invalid(option, "must be a JSON object")
    return value
