"""What a token endpoint's answer means. Pure; no text of it goes further than this file.

Granted   new tokens, checked
Refused   the server knows this grant or this client no more: asking again changes nothing
Later     it cannot now, and did nothing: ask again after a while
Unknown   it may have made new tokens and spent the one it was asked with
"""

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from carpal.json_in import plain_object
from vault.secret import LEAST, MOST, Secret

SIZE_MAX = 64 * 1024
LIFETIME_MAX = 10 * 365 * 86_400
LATER_MAX = 3600.0
"""Seconds that a server may ask for."""
STRUCK_OUT = "[REDACTED]"
"""What the guard leaves of the refresh token that was sent, where a server repeats it."""
_TOKEN = re.compile(r"[\x21-\x7e]+")
_GRANT = frozenset(["invalid_grant"])
_CLIENT = frozenset(
    [
        "invalid_client",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_grant_type",
    ]
)


@dataclass(frozen=True, slots=True)
class Granted:
    """New tokens."""

    access: Secret
    refresh: Secret | None
    """None: the one there is stays (RFC 6749, section 6)."""
    expires_in: float | None


@dataclass(frozen=True, slots=True)
class Refused:
    """For good."""

    code: str
    """One of the codes of RFC 6749 and 8707, or none of them."""

    @property
    def consent(self) -> bool:
        """Whether the user must consent again; an operator must correct the client otherwise."""
        return self.code in _GRANT


@dataclass(frozen=True, slots=True)
class Later:
    """Not now."""

    status: int
    seconds: float = 0.0
    """That the server asks for; 0 if it does not say."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell."""

    why: str = field(default="")


Answer: TypeAlias = Granted | Refused | Later | Unknown


def read(status: int, content_type: str, body: bytes, retry_after: str = "") -> Answer:
    """What an answer says. One that is not as it must be is believed in nothing."""
    said = plain_object(body, size=SIZE_MAX) if _is_json(content_type) else None
    if 200 <= status < 300:
        return _granted(said) if status == 200 else Unknown("status")
    if status in (400, 401, 403) and said is not None:
        code = said.get("error")
        if isinstance(code, str) and code in _GRANT | _CLIENT:
            return Refused(code)
    return Later(status, _seconds(retry_after))


def _granted(said: dict[str, object] | None) -> Answer:
    if said is None:
        return Unknown("not_json")
    kind, access, refresh = (said.get(n) for n in ("token_type", "access_token", "refresh_token"))
    if not isinstance(kind, str) or kind.lower() != "bearer":
        return Unknown("token_type")
    if not _good(access):
        return Unknown("access_token")
    if refresh is not None and refresh != STRUCK_OUT and not _good(refresh):
        return Unknown("refresh_token")
    lifetime = said.get("expires_in")
    if isinstance(lifetime, str) and re.fullmatch(r"[0-9]{1,9}", lifetime):
        lifetime = int(lifetime)  # some servers quote it
    if lifetime is not None and (
        isinstance(lifetime, bool)
        or not isinstance(lifetime, int | float)
        or not 0 <= lifetime <= LIFETIME_MAX
    ):
        return Unknown("expires_in")
    new = None if refresh is None or refresh == STRUCK_OUT else Secret(str(refresh))
    return Granted(Secret(str(access)), new, None if lifetime is None else float(lifetime))


def _good(token: object) -> bool:
    return (
        isinstance(token, str)
        and LEAST <= len(token) <= MOST
        and bool(_TOKEN.fullmatch(token))
        and STRUCK_OUT not in token
    )


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _seconds(retry_after: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}", retry_after):
        return 0.0
    return min(float(retry_after), LATER_MAX)
