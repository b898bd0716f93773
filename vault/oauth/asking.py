"""The requests to a token endpoint, as they are sent."""

from urllib.parse import quote, urlencode

from vault.guard.headers import HeaderValue, basic
from vault.guard.targets import Target
from vault.guard.transport import Request
from vault.oauth.ports import Authentication, Client
from vault.secret import Secret

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


def refreshing(client: Client, secret: Secret | None, refresh: Secret) -> Request:
    """To ask for another access token. BadTarget for an endpoint that is none."""
    form = [("grant_type", "refresh_token"), ("refresh_token", refresh.reveal().decode())]
    form += _optional(resource=client.resource, scope=client.scope)
    return _asked(client, secret, form)


def exchanging(
    client: Client, secret: Secret | None, code: Secret, verifier: Secret, redirect: str
) -> Request:
    """To have the first tokens for a code that consent gave."""
    form = [
        ("grant_type", "authorization_code"),
        ("code", code.reveal().decode()),
        ("redirect_uri", redirect),
        ("code_verifier", verifier.reveal().decode()),
    ]
    return _asked(client, secret, form + _optional(resource=client.resource))


def _asked(client: Client, secret: Secret | None, form: list[tuple[str, str]]) -> Request:
    headers: list[tuple[str, HeaderValue]] = [
        ("Content-Type", FORM),
        ("Accept", "application/json"),
    ]
    # Also beside a header that says it: there are servers that look for it nowhere else.
    form = [*form, ("client_id", client.client_id)]
    if client.authentication is Authentication.BASIC and secret is not None:
        # Both are encoded before they are joined (RFC 6749, section 2.3.1): a space as %20, which
        # servers that decode a form and those that decode a URL read alike.
        encoded = Secret(quote(secret.reveal(), safe=""))
        headers.append(("Authorization", basic(quote(client.client_id, safe=""), encoded)))
    elif client.authentication is Authentication.POST and secret is not None:
        form.append(("client_secret", secret.reveal().decode()))
    return Request("POST", Target.parse(client.token_endpoint), headers, urlencode(form).encode())


def _optional(**parts: str | None) -> list[tuple[str, str]]:
    return [(name, value) for name, value in parts.items() if value is not None]
