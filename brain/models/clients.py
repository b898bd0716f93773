"""The `anthropic` package's clients, one a provider, made when first asked for.

Retries are the harness's, so that each attempt is in the log; the package's
own are off. Identity is ambient, as each client finds it: keys in the
environment, the cloud's roles, workload identity; or a token command's.
"""

import os
import ssl
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2

from brain.models.bounds import bound
from brain.models.reading import Unreadable
from brain.models.settings import Provider
from brain.models.token_command import TokenCommand, TokenError
from brain.models.unsaid import Unsaid, without_paths
from carpal import extras

Client = anthropic.AsyncAnthropic | anthropic.AsyncAnthropicBedrock | anthropic.AsyncAnthropicVertex
"""Foundry's is one of the first kind."""
_STANDS_IN = "the-token-command-gives-it"
"""Where a client wants a key at its start; what is sent is the token, or nothing."""
_KEYS = ("authorization", "x-api-key", "api-key")
_TRIES, _BETWEEN = 5, 0.02
"""Of reading an identity that is being replaced, and seconds between them."""
_PROJECT = "ANTHROPIC_VERTEX_PROJECT_ID"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=30.0)
"""As the package has them, but that a connection outlasts a tool call: to make one takes round
trips, for TCP and TLS, before the model is even asked. Services keep them for a minute or more."""
_PACKAGES = {"bedrock": ("boto3",), "vertex": ("google.auth", "requests")}


class Unusable(Exception):
    """A provider's settings lead to no client; the message says what to do.

    It is for the log, and names no path: `where` does, for the brain's own.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


@dataclass(eq=False)
class Made:
    """A client, and what it was made from."""

    client: Client
    stamp: tuple[int, ...]
    """When the files it read were changed."""
    unsaid: Unsaid
    """What was shown to the service, and must not be in a log."""
    calls: int = 0
    """Under way."""


def stamp(provider: Provider) -> tuple[int, ...]:
    """Changes when a certificate was renewed. Raises Unusable when a file is not there."""
    found = []
    for setting, path in provider.files().items():
        try:
            found.append(path.stat().st_mtime_ns)
        except OSError as error:
            raise Unusable(f"{setting}: {error.strerror}", str(path)) from None
    return tuple(found)


def make(name: str, provider: Provider) -> Made:
    """A client of a provider. Raises Unusable, and `identity_errors`."""
    _check_packages(provider.kind)
    at = stamp(provider)
    unsaid = Unsaid()
    http = _http(provider, unsaid)
    common: dict[str, Any] = {
        "max_retries": 0,
        "http_client": http,
        "default_headers": provider.headers or None,
        "base_url": provider.base_url or None,
    }
    try:
        return Made(_client(provider, common), at, unsaid)
    except (ValueError, anthropic.AnthropicError) as error:
        raise Unusable(f"provider {name!r}: {without_paths(str(error))}", str(error)) from None


def _client(provider: Provider, common: dict[str, Any]) -> Client:
    key = _STANDS_IN if provider.token_command or provider.vault else None
    match provider.kind:
        case "anthropic":
            return anthropic.AsyncAnthropic(auth_token=key, **common)
        case "bedrock":
            return anthropic.AsyncAnthropicBedrock(
                api_key=key,
                aws_region=provider.region or None,
                aws_profile=provider.profile or None,
                **common,
            )
        case "vertex":
            named: dict[str, Any] = {
                key: value
                for key, value in (("region", provider.region), ("project_id", provider.project))
                if value
            }
            if not key and not provider.project and not os.environ.get(_PROJECT):
                named |= _google()
            return anthropic.AsyncAnthropicVertex(access_token=key, **named, **common)
        case "foundry":
            if provider.resource:
                common["resource"] = provider.resource
            foundry: anthropic.AsyncAnthropic = anthropic.AsyncAnthropicFoundry(
                api_key=key, **common
            )
            return foundry


def _google() -> dict[str, Any]:
    """The ambient identity and the project it belongs to: the package asks for it too late."""
    import google.auth

    credentials, project = google.auth.default(scopes=[_SCOPE])
    if not project:
        raise Unusable(f"no project: set it in [providers.…], or {_PROJECT}")
    return {"credentials": credentials, "project_id": project}


def has_identity(client: Client) -> bool:
    """Whether there is anything to authenticate with, as far as can be known without asking."""
    if not isinstance(client, anthropic.AsyncAnthropic):
        return True  # a cloud's identity is looked for when it is needed
    own = {name.lower() for name in client.default_headers} & {"authorization", "x-api-key"}
    keyed = client.api_key or client.auth_token or client.credentials
    return bool(keyed or own or isinstance(client, anthropic.AsyncAnthropicFoundry))


class _Token(httpx2.Auth):
    """The token command's token on every request; a new one, once, where it was refused."""

    def __init__(self, command: TokenCommand) -> None:
        self._command = command

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """See httpx2."""
        token = await self._show(request)
        response = yield request
        if response.status_code == 401:
            self._command.refused(token)
            await self._show(request)
            yield request

    async def _show(self, request: httpx2.Request) -> str:
        token = await self._command.token()
        for name in ("x-api-key", "api-key"):
            request.headers.pop(name, None)
        request.headers["Authorization"] = f"Bearer {token}"
        return token


def _http(provider: Provider, unsaid: Unsaid) -> httpx2.AsyncClient:
    """The connections: TLS as the settings say, every wait and every answer bounded."""
    timeout = httpx2.Timeout(
        connect=provider.connect_timeout,
        read=provider.first_timeout,
        write=provider.first_timeout,
        pool=provider.first_timeout,
    )

    async def asked(request: httpx2.Request) -> None:
        if provider.vault:
            for name in _KEYS:
                request.headers.pop(name, None)  # also one of the environment's
            request.extensions["sni_hostname"] = provider.server_name
        unsaid.saw(request.headers)

    async def answered(response: httpx2.Response) -> None:
        bound(response, aws=provider.kind == "bedrock")
        # The headers are there: from here on it is a stream that may not stand still.
        response.request.extensions["timeout"]["read"] = provider.idle_timeout

    more: dict[str, Any] = {"limits": _LIMITS}
    if provider.token_command:
        command = TokenCommand(
            provider.token_command,
            lasts=provider.token_seconds,
            timeout=provider.token_timeout,
        )
        more["auth"] = _Token(command)
    if provider.vault:
        more |= {"verify": _tls_of_our_own(provider), "trust_env": False}
    elif provider.files():
        more["verify"] = _tls(provider)
    return anthropic.DefaultAsyncHttpxClient(
        timeout=timeout,
        headers={"accept-encoding": "identity"},
        # What a request holds is for nobody but the host that the settings name.
        follow_redirects=False,
        event_hooks={"request": [asked], "response": [answered]},
        **more,
    )


def _tls(provider: Provider) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=provider.ca_bundle or None)
    except (OSError, ssl.SSLError) as error:
        raise Unusable(f"ca_bundle: {_why(error)}", provider.ca_bundle) from None
    if provider.client_certificate:
        try:
            context.load_cert_chain(provider.client_certificate, provider.client_key or None)
        except (OSError, ssl.SSLError) as error:
            where = f"{provider.client_certificate} {provider.client_key}".strip()
            raise Unusable(f"client_certificate: {_why(error)}", where) from None
    return context


def _tls_of_our_own(provider: Provider) -> ssl.SSLContext:
    """By the brain's own identity, which renews itself: for a moment its files do not fit."""
    for left in reversed(range(_TRIES)):
        try:
            context = _tls(provider)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            return context
        except Unusable:
            if not left:
                raise
            time.sleep(_BETWEEN)  # clients are made in a thread
    raise AssertionError


def _why(error: OSError) -> str:
    return without_paths(error.strerror or str(error))


def _check_packages(kind: str) -> None:
    for name in _PACKAGES.get(kind, ()):
        try:
            __import__(name)
        except ModuleNotFoundError as error:
            missing = error.name or name
            raise Unusable(
                f"the package {missing!r} is not installed: {extras.how(kind)}"
            ) from None


def identity_errors(kind: str) -> tuple[type[Exception], ...]:
    """What is raised when there is no identity to be had, by a cloud's package among others."""
    found: list[type[Exception]] = [RuntimeError, TokenError, anthropic.CredentialsError]
    if kind == "bedrock":
        import botocore.exceptions

        found.append(botocore.exceptions.BotoCoreError)
    if kind == "vertex":
        import google.auth.exceptions

        found.append(google.auth.exceptions.GoogleAuthError)
    return tuple(found)


def stream_errors(kind: str) -> tuple[type[Exception], ...]:
    """What is raised when a stream is not what its wire says."""
    if kind != "bedrock":
        return (Unreadable, ValueError)
    import botocore.eventstream

    return (Unreadable, ValueError, botocore.eventstream.ParserError)
