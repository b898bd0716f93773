"""An OAuth authorization server, by the official SDK, that keeps what it gave and can fail.

Refresh tokens are spent by their first use, and who shows a spent one loses the grant.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes, create_protected_resource_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.tls_ca import Authority
from tests.vault.mcp.world import served

AS_HOST = "login.a.test"
Failure = Callable[[Request], "Response | None"]


@dataclass
class Login:
    """The server's state: also its provider, as the SDK calls it."""

    rotates: bool = True
    expires_in: int | None = 3600
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    live: dict[str, RefreshToken] = field(default_factory=dict)
    spent: set[str] = field(default_factory=set)
    access: list[str] = field(default_factory=list)
    posts: list[dict[str, list[str]]] = field(default_factory=list)
    """The forms that came to /token."""
    fails: list[Failure] = field(default_factory=list)
    """What answers instead, one POST each."""
    gate: asyncio.Event | None = None
    """Until it is set no POST to /token is answered."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    issuer: str = ""
    named: str = ""
    """The issuer as the SDK writes it."""
    pages: list[str] = field(default_factory=list)
    lies: dict[str, Response] = field(default_factory=dict)
    """By path: what is answered instead."""
    waiting: dict[str, tuple[OAuthClientInformationFull, AuthorizationParams]] = field(
        default_factory=dict
    )
    iss: str | None = None
    """What the redirect says of who answers; as it should be when None."""

    def client(self, client_id: str, method: str = "none", secret: str | None = None) -> str:
        self.clients[client_id] = OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret,
            token_endpoint_auth_method=method,
            redirect_uris=None,
            scope="read",
        )
        return client_id

    def refresh_token(self, client_id: str) -> str:
        token = f"rt-{secrets.token_urlsafe(24)}"
        self.live[token] = RefreshToken(token=token, client_id=client_id, scopes=["read"])
        return token

    def access_token(self) -> str:
        self.access.append(f"at-{secrets.token_urlsafe(24)}")
        return self.access[-1]

    # The provider.

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        ticket = secrets.token_urlsafe(8)
        self.waiting[ticket] = (client, params)
        return f"{self.issuer}/consent?ticket={ticket}"

    def consented(self, ticket: str) -> str:
        client, params = self.waiting.pop(ticket)
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        said = {"code": code, "state": params.state, "iss": self.iss or self.named}
        return construct_redirect_uri(str(params.redirect_uri), **said)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._granted(client.client_id, self.refresh_token(client.client_id))

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        if refresh_token in self.spent:
            self.live.clear()  # somebody stole it
        return self.live.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if not self.rotates:
            return self._granted(client.client_id, None)
        if self.live.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.spent.add(refresh_token.token)
        return self._granted(client.client_id, self.refresh_token(client.client_id))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return None

    async def exchange_identity_assertion(self, client: Any, params: Any) -> OAuthToken:
        raise TokenError("unsupported_grant_type")

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.live.pop(token.token, None)

    def _granted(self, client_id: str, refresh: str | None) -> OAuthToken:
        return OAuthToken(
            access_token=self.access_token(),
            token_type="Bearer",
            expires_in=self.expires_in,
            refresh_token=refresh,
            scope="read",
        )


class _Counting:
    """Notes each POST to /token, holds it up, and fails it if it is told to."""

    def __init__(self, app: Any, login: Login) -> None:
        self.app, self.login = app, login

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.login.pages.append(scope["path"])
        if lie := self.login.lies.get(scope["path"]):
            await lie(scope, receive, send)
            return
        if scope["path"] != "/token" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        self.login.posts.append(parse_qs(body.decode()))
        self.login.asked.set()
        if self.login.gate is not None:
            await self.login.gate.wait()
        failure = self.login.fails.pop(0) if self.login.fails else None
        answer = failure(request) if failure else None
        if answer is not None:
            await answer(scope, receive, send)
            return

        async def again() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)


@asynccontextmanager
async def login_server(
    authority: Authority, login: Login | None = None, host: str = AS_HOST
) -> AsyncIterator[tuple[Login, int]]:
    """One that is there, with its port; for an MCP server at /mcp of the same origin, too."""
    login = login or Login()

    async def consent(request: Request) -> Response:
        ticket = request.query_params["ticket"]
        return HTMLResponse(f'<a id="allow" href="/allow?ticket={ticket}">Allow</a>')

    async def allow(request: Request) -> Response:
        return RedirectResponse(login.consented(request.query_params["ticket"]), 302)

    async def mcp(request: Request) -> Response:
        where = f"{login.issuer}/.well-known/oauth-protected-resource/mcp"
        return Response(
            status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'}
        )

    app = Starlette(
        routes=[
            Route("/consent", consent),
            Route("/allow", allow),
            Route("/mcp", mcp, methods=["GET", "POST"]),
        ]
    )
    async with served(authority, _Counting(app, login), host) as port:
        login.issuer = f"https://{host}:{port}"
        options = ClientRegistrationOptions(enabled=True, valid_scopes=["read"])
        issuer = AnyHttpUrl(login.issuer)
        login.named = str(issuer)
        app.router.routes += create_auth_routes(
            login,
            issuer,
            client_registration_options=options,
        )
        app.router.routes += create_protected_resource_routes(
            AnyHttpUrl(f"{login.issuer}/mcp"), [issuer], ["read"]
        )
        yield login, port
