"""A person's consent becomes a credential: what an operator's command does, away from the vault.

It finds the authorization server, becomes its client where it is none, sends a browser there, and
exchanges the code that comes back. What it gives is what `CreateCredential` takes.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from vault.guard.addresses import Network
from vault.guard.transport import Guard
from vault.oauth import endpoint
from vault.oauth.answers import Granted, Later, Refused
from vault.oauth.asking import exchanging
from vault.oauth.consent import Question, answer, failed
from vault.oauth.described import Describer
from vault.oauth.loopback import loopback
from vault.oauth.ports import Authentication, Client
from vault.oauth.when import expiry
from vault.redact.patterns import SHORTEST
from vault.secret import Secret

PATIENCE = 600.0
"""Seconds that a person has."""

Browser = Callable[[str], Awaitable[None]]
"""Sends one to a URL; it comes back to this machine."""
Paste = Callable[[str], Awaitable[str]]
"""Has a person go to a URL, anywhere, and gives what they paste: where they were sent back to."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A client that an operator registered by hand."""

    client_id: str
    secret: Secret | None = None
    authentication: Authentication = Authentication.NONE


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A credential of kind `mcp_oauth`, to be put into the vault."""

    policy: dict[str, Any]
    secrets: dict[str, bytes] = field(repr=False)


async def enrol(
    guard: Guard,
    url: str,
    *,
    browser: Browser | None = None,
    paste: Paste | None = None,
    registered: Registered | None = None,
    scope: str | None = None,
    private: tuple[Network, ...] = (),
) -> Enrolled:
    """For the MCP server at `url`: by a browser of this machine, or by what is pasted.

    Raises CONSENT_FAILED.
    """
    describer = Describer(guard, private)
    there = await describer.describe(url, scope)
    async with loopback() as waiting:
        if registered is None:
            made = await describer.register(there, waiting.redirect)
            client_id, authentication, told = made
            secret = None if told is None else Secret(told)
        else:
            client_id, secret = registered.client_id, registered.secret
            authentication = registered.authentication
        question = Question(
            there.authorization_endpoint,
            client_id,
            waiting.redirect,
            Secret(secrets.token_urlsafe(48)),
            secrets.token_urlsafe(32),
            there.resource,
            there.scope,
        )
        try:
            async with asyncio.timeout(PATIENCE):
                if browser is not None:
                    waiting.expect(question)
                    await browser(question.url)
                    back = await waiting.answer()
                elif paste is not None:
                    back = await paste(question.url)
                else:
                    raise ValueError("a browser, or somebody who pastes")
        except TimeoutError:
            raise failed("nobody consented within ten minutes") from None
    if not question.answers(back):
        raise failed("what came back is no answer to this question")
    code, iss = answer(back)
    there.said_by(iss)
    client = Client(there.token_endpoint, client_id, authentication, there.resource, None, private)
    sent = time.time()
    granted = await _exchanged(guard, client, secret, question, code)
    expires, _ = expiry(granted.expires_in, None, sent)
    held = {"access_token": granted.access, "refresh_token": granted.refresh}
    policy = {
        "mcp_server_url": url,
        "private_networks": [str(each) for each in private],
        "expires_at": expires,
        "refresh": None if granted.refresh is None else _refreshing(client),
    }
    if granted.refresh is not None:
        held["client_secret"] = secret  # without anything to refresh it is of no use
    kept = {name: each.reveal() for name, each in held.items() if each is not None}
    return Enrolled(policy, kept)


async def _exchanged(
    guard: Guard, client: Client, secret: Secret | None, question: Question, code: Secret
) -> Granted:
    where = client.token_endpoint
    request = exchanging(client, secret, code, question.verifier, question.redirect)
    hidden = [question.verifier, *([secret] if secret else [])]
    if len(code.reveal()) >= SHORTEST:
        hidden.append(code)
    match await endpoint.ask(guard, request, client, hidden):
        case Granted() as granted:
            return granted
        case Refused(why):
            raise failed(f"{where} does not exchange the code ({why})")
        case Later(status):
            raise failed(f"{where} does not exchange the code", status=str(status))
        case _:
            raise failed(f"{where} answered with no tokens that are any")


def _refreshing(client: Client) -> dict[str, Any]:
    return {
        "client_id": client.client_id,
        "token_endpoint": client.token_endpoint,
        "token_endpoint_auth": str(client.authentication),
        "resource": client.resource,
        "scope": client.scope,
    }
