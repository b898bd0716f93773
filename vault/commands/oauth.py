"""What `carpal vault credential add --oauth URL` asks of a person: consent, in a browser."""

import asyncio
import sys
import webbrowser
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from carpal.cli import extra
from carpal.errors import invalid

if TYPE_CHECKING:
    from vault.guard.transport import Guard
    from vault.oauth.enrol import Enrolled, Registered

OPTIONS = ("no_browser", "client_id", "client_auth", "scope", "private_networks")
"""Names of what goes with `--oauth`, as a command gets them."""


def oauth_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--oauth` and what goes with it."""
    command = consent_options(command)
    told = "Of an MCP server: consent in a browser."
    return click.option("--oauth", metavar="URL", help=told)(command)


def consent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a person is asked, and for what."""
    for option in reversed(
        [
            click.option(
                "--no-browser", is_flag=True, help="Print where to go, and paste what comes back."
            ),
            click.option(
                "--client-id", metavar="ID", help="Of a client registered there by hand; its "
                "secret is --secret client_secret=FILE.",
            ),
            click.option(
                "--client-auth",
                type=click.Choice(["none", "client_secret_basic", "client_secret_post"]),
                help="How that client says who it is.  [client_secret_basic, or none]",
            ),
            click.option("--scope", help="What to ask for.  [what the server says]"),
            click.option(
                "--private-network", "private_networks", multiple=True, metavar="CIDR",
                help="A private network that the servers may be in; repeatable.",
            ),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def consented(
    url: str,
    secrets: Mapping[str, bytes],
    options: Mapping[str, Any],
    guard: "Callable[[], Guard] | None" = None,
) -> "Enrolled":
    """As `asked`, to its end."""
    return asyncio.run(asked(url, secrets, options, guard))


async def asked(
    url: str,
    secrets: Mapping[str, bytes],
    options: Mapping[str, Any],
    guard: "Callable[[], Guard] | None" = None,
) -> "Enrolled":
    """A credential that a person consents to now. Raises CONSENT_FAILED, INVALID_FIELD.

    `options` are those of `oauth_options`; `guard` is another than that of production, in tests.
    """
    with extra("vault"):
        from vault.guard.addresses import private_network
        from vault.guard.transport import Guard
        from vault.oauth.enrol import enrol
    registered = _registered(options["client_id"], options["client_auth"], secrets)
    try:
        private = tuple(private_network(each) for each in options["private_networks"])
    except ValueError as wrong:
        raise invalid("--private-network", str(wrong)) from None
    how: dict[str, Any] = {"paste": _paste} if options["no_browser"] else {"browser": _browse}

    async with (guard or Guard)() as out:
        return await enrol(
            out, url, registered=registered, scope=options["scope"], private=private, **how
        )


def _registered(
    client_id: str | None, client_auth: str | None, secrets: Mapping[str, bytes]
) -> "Registered | None":
    from vault.oauth.enrol import Registered
    from vault.oauth.ports import Authentication
    from vault.secret import Secret, storable

    secret = secrets.get("client_secret")
    if set(secrets) - {"client_secret"}:
        raise invalid("--secret", "has only client_secret beside --oauth: tokens come by consent")
    if client_id is None:
        if secret is not None or client_auth is not None:
            raise invalid("--client-id", "is missing: whose secret, or way, is it?")
        return None
    how = client_auth or ("none" if secret is None else "client_secret_basic")
    if (secret is None) != (how == "none"):
        raise invalid("--client-auth", "is none without a client_secret, and only then")
    if secret is not None:
        storable(secret, "--secret client_secret")
    return Registered(client_id, None if secret is None else Secret(secret), Authentication(how))


async def _browse(url: str) -> None:
    click.echo(f"consent in your browser; if none opens, go to\n  {url}", err=True)
    await asyncio.to_thread(webbrowser.open, url)


async def _paste(url: str) -> str:
    click.echo(
        f"go to\n  {url}\nand consent. The browser then fails to open a page of 127.0.0.1: paste "
        "the whole address that it shows.",
        err=True,
    )
    if not sys.stdin.isatty():
        return str(await asyncio.to_thread(sys.stdin.readline)).strip()
    # The code in it is of use to nobody else; hidden, it is in no recording of the screen either.
    return str(await asyncio.to_thread(click.prompt, "address", hide_input=True, err=True))
