"""What an MCP server and its authorization server say of themselves, held to what MCP demands.

The one door to `mcp` in the vault: its models, and its rules of where things are looked for and
whose word counts. Everything is fetched by the guard. Used at enrolment alone: a refresh goes to
what is stored.
"""

import re
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    get_client_metadata_scopes,
    validate_authorization_response_iss,
    validate_metadata_issuer,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyUrl, BaseModel, ValidationError

from vault.guard.addresses import Network
from vault.guard.errors import BadTarget, GuardError
from vault.guard.limits import Limits
from vault.guard.targets import Target
from vault.guard.transport import Guard, Request
from vault.oauth.consent import failed
from vault.oauth.ports import Authentication

_LIMITS = Limits(
    connect=5.0, first_byte=15.0, idle=15.0, total=20.0, request_bytes=65536, reply_bytes=262_144
)
_METADATA = re.compile(r'resource_metadata=(?:"([^"]{1,2048})"|([^\s,]{1,2048}))', re.IGNORECASE)
_SCOPE = re.compile(r'(?:^|[\s,])scope="([^"]{1,1024})"', re.IGNORECASE)
_PREFERRED = (Authentication.NONE, Authentication.BASIC, Authentication.POST)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Described:
    """An authorization server, and what it is to be asked for."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None
    resource: str
    scope: str | None
    metadata: OAuthMetadata

    def said_by(self, iss: str | None) -> None:
        """CONSENT_FAILED when another server answered the question (RFC 9207)."""
        try:
            validate_authorization_response_iss(iss, self.metadata)
        except OAuthFlowError:
            raise failed("another authorization server answered than was asked") from None


class Describer:
    """Finds out, through one guard."""

    def __init__(self, guard: Guard, private: tuple[Network, ...] = ()) -> None:
        self._guard = guard
        self._private = private

    async def describe(self, url: str, scope: str | None = None) -> Described:
        """Of the MCP server at `url`. CONSENT_FAILED says what is missing or wrong."""
        hinted, hinted_scope = await self._hints(url)
        resource = await self._resource(url, hinted)
        if resource is None:
            parts = urlsplit(url)
            issuer, wanted = f"{parts.scheme}://{parts.netloc}", resource_url_from_server_url(url)
        else:
            issuer, wanted = str(resource.authorization_servers[0]), str(resource.resource)
        metadata = await self._metadata(issuer, url)
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise failed(f"{issuer} does not say that it knows PKCE with S256")
        registration = metadata.registration_endpoint
        grants = ["authorization_code", "refresh_token"]
        return Described(
            issuer,
            _https(str(metadata.authorization_endpoint), "authorization_endpoint"),
            _https(str(metadata.token_endpoint), "token_endpoint"),
            None if registration is None else _https(str(registration), "registration_endpoint"),
            wanted,
            scope or get_client_metadata_scopes(hinted_scope, resource, metadata, grants),
            metadata,
        )

    async def register(
        self, there: Described, redirect: str
    ) -> tuple[str, Authentication, str | None]:
        """Be a client of it: its id, how it says who it is, and its secret."""
        if there.registration_endpoint is None:
            raise failed(
                f"{there.issuer} registers no clients",
                action="register one there by hand, with the redirect "
                "http://127.0.0.1/callback, and give its --client-id",
            )
        known = there.metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        method = next((each for each in _PREFERRED if each in known), Authentication.BASIC)
        asked = OAuthClientMetadata(
            redirect_uris=[AnyUrl(redirect)],
            client_name="Carpal",
            token_endpoint_auth_method=method.value,
            scope=there.scope,
        )
        status, body, _ = await self._fetch(
            Request(
                "POST",
                Target.parse(there.registration_endpoint),
                [("Content-Type", "application/json"), ("Accept", "application/json")],
                asked.model_dump_json(exclude_none=True).encode(),
            )
        )
        made = _model(OAuthClientInformationFull, body) if status in (200, 201) else None
        if made is None:
            raise failed(f"{there.issuer} did not register a client", status=str(status))
        given = made.token_endpoint_auth_method or method.value
        if given not in set(Authentication):
            raise failed(f"{there.issuer} wants its clients to say who they are in a way not known")
        if given != Authentication.NONE and not made.client_secret:
            raise failed(f"{there.issuer} registered a client without a secret")
        secret = None if given == Authentication.NONE else made.client_secret
        return made.client_id, Authentication(given), secret

    async def _hints(self, url: str) -> tuple[str | None, str | None]:
        """Where the server says that its description is, and the scope that it wants."""
        request = Request("GET", _target(url), [("Accept", "application/json, text/event-stream")])
        status, _, challenge = await self._fetch(request, whole=False)
        if status not in (401, 403):
            return None, None
        where, scope = _METADATA.search(challenge), _SCOPE.search(challenge)
        return (where[1] or where[2]) if where else None, scope[1] if scope else None

    async def _resource(self, url: str, hinted: str | None) -> ProtectedResourceMetadata | None:
        for each in build_protected_resource_metadata_discovery_urls(hinted, url):
            found = await self._get(ProtectedResourceMetadata, each)
            if found is None:
                continue
            if not check_resource_allowed(resource_url_from_server_url(url), str(found.resource)):
                raise failed("the MCP server describes itself as another one")
            return found
        return None

    async def _metadata(self, issuer: str, url: str) -> OAuthMetadata:
        for each in build_oauth_authorization_server_metadata_discovery_urls(issuer, url):
            found = await self._get(OAuthMetadata, each)
            if found is None:
                continue
            try:
                validate_metadata_issuer(found, issuer)
            except OAuthFlowError:
                raise failed("the authorization server describes itself as another one") from None
            return found
        raise failed(f"nothing describes the authorization server {_shown(issuer)}")

    async def _get(self, model: type[M], url: str) -> M | None:
        request = Request("GET", _target(url), [("Accept", "application/json")])
        status, body, _ = await self._fetch(request)
        return _model(model, body) if status == 200 else None

    async def _fetch(self, request: Request, *, whole: bool = True) -> tuple[int, bytes, str]:
        """Status, body and challenge. What is not needed of a body is not waited for."""
        try:
            async with self._guard.send(
                request, limits=_LIMITS, private=self._private, wanted=("www-authenticate",)
            ) as reply:
                body = await reply.read() if whole else b""
                return reply.status, body, reply.headers.get("www-authenticate", "")
        except GuardError as error:
            raise failed(f"{request.target}: {error}") from None


def _model(model: type[M], body: bytes) -> M | None:
    try:
        return model.model_validate_json(body)
    except ValidationError:
        return None


def _target(url: str) -> Target:
    try:
        return Target.parse(url)
    except BadTarget:
        raise failed(f"{_shown(url)} is no https address that is spoken to") from None


def _https(url: str, what: str) -> str:
    try:
        Target.parse(url)
    except BadTarget:
        raise failed(f"the {what} of the authorization server is no plain https URL") from None
    return url


def _shown(url: str) -> str:
    """A server's own word, as far as it is shown."""
    return "".join(each for each in url if each.isprintable())[:200]
