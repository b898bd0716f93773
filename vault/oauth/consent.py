"""Asking a person for consent: where they are sent, and what comes back with them. Pure.

The code that comes back is of use only to who has the verifier, which never leaves this process
but for the token endpoint (PKCE). The state says that it is an answer to this question.
"""

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from vault.secret import Secret

_ERRORS = {
    "access_denied": "consent was refused",
    "invalid_scope": "the authorization server does not give that scope",
    "invalid_target": "the authorization server does not know that resource",
    "invalid_request": "the authorization server does not take the request",
    "server_error": "the authorization server failed",
    "temporarily_unavailable": "the authorization server is not available now",
    "unauthorized_client": "the authorization server does not let this client ask",
    "unsupported_response_type": "the authorization server gives no codes",
}


@dataclass(frozen=True, slots=True)
class Question:
    """One, to one authorization server."""

    endpoint: str
    client_id: str
    redirect: str
    verifier: Secret = field(repr=False)
    state: str = field(repr=False)
    resource: str | None = None
    scope: str | None = None

    @property
    def url(self) -> str:
        """Where the person's browser goes."""
        digest = sha256(self.verifier.reveal()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect,
            "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "state": self.state,
            "resource": self.resource,
            "scope": self.scope,
        }
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return f"{self.endpoint}{'&' if '?' in self.endpoint else '?'}{query}"

    def answers(self, url: str) -> bool:
        """Whether this is where the browser was sent back to, for this question."""
        here, there = urlsplit(self.redirect), urlsplit(url.strip())
        same = (here.scheme, here.netloc, here.path) == (there.scheme, there.netloc, there.path)
        state = dict(parse_qsl(there.query)).get("state", "")
        return same and hmac.compare_digest(state.encode(), self.state.encode())


def answer(url: str) -> tuple[Secret, str | None]:
    """The code that the browser came back with, and who says that it gave it.

    `url` is one that answers the question. CONSENT_FAILED says why there is no code.
    """
    pairs = parse_qsl(urlsplit(url.strip()).query)
    said = dict(pairs)
    if len(said) != len(pairs):
        raise failed("the browser came back with a part of the answer twice")
    if "error" in said:
        raise failed(_ERRORS.get(said["error"], "the authorization server refused, and why is new"))
    code = said.get("code", "")
    if not (code.isascii() and code.isprintable() and 0 < len(code) <= 4096):
        raise failed("the browser came back without a code")
    return Secret(code), said.get("iss")


def failed(why: str, **fields: str) -> CarpalError:
    """Consent that came to nothing."""
    return refuse(Reason.CONSENT_FAILED, why, **fields)
