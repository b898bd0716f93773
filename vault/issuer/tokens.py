"""A token: who asks, for one server, for five minutes. Signed, and kept nowhere.

Three segments of base64url, the last of which is ECDSA P-256 over SHA-256 of the first two (ES256).
Nothing here reads one: the vault takes no such token from anybody.
"""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from vault.guard.targets import Target
from vault.issuer.keys import LIFE, SKEW, Keys, text64


@dataclass(frozen=True, slots=True)
class Subject:
    """Who asks; an agent and a session that are not known are left out of the token."""

    workspace: str
    agent: str = ""
    session: str = ""

    @property
    def name(self) -> str:
        """Its `sub`. A workspace's name has no colon, and the agent's is the last part of it."""
        agent = f":agent:{self.agent}" if self.agent else ""
        return f"workspace:{self.workspace}{agent}"


@dataclass(frozen=True, slots=True)
class Token:
    """One, and what the audit says of it."""

    text: bytes
    id: str
    """Its `jti`."""
    key: str
    """Its `kid`."""


def audience(target: Target) -> str:
    """The server's origin."""
    return f"https://{target.authority}"


def token(keys: Keys, who: Subject, to: Target, now: int) -> Token:
    """For a server, by the key that signs now."""
    name = secrets.token_urlsafe(16)
    began = now - SKEW
    claims: dict[str, Any] = {
        "iss": keys.url,
        "sub": who.name,
        "aud": audience(to),
        "iat": began,
        "nbf": began,
        "exp": began + LIFE,
        "jti": name,
        "workspace": who.workspace,
    }
    claims |= {"agent": who.agent} if who.agent else {}
    claims |= {"session": who.session} if who.session else {}
    head = {"alg": "ES256", "kid": keys.signing.id, "typ": "JWT"}
    said = f"{_segment(head)}.{_segment(claims)}"
    der = keys.signing.private().sign(said.encode(), ec.ECDSA(hashes.SHA256()))
    r, s = decode_dss_signature(der)
    signature = text64(r.to_bytes(32) + s.to_bytes(32))
    return Token(f"{said}.{signature}".encode(), name, keys.signing.id)


def _segment(told: dict[str, Any]) -> str:
    return text64(json.dumps(told, separators=(",", ":")).encode())
