"""When an access token is of use, and when it is time for another. Pure."""

from hashlib import sha256

from vault.oauth.ports import Tokens

EARLY = 300.0
"""Seconds before its end at most, at which a token is replaced."""
SHARE = 0.1
"""Of its lifetime, if that is less."""
SPREAD = 0.1
"""Of that, either way: what was enrolled together is not refreshed together."""
JUMP = 60.0
"""Seconds by which the clock may be moved before nothing it says of a token is believed."""


def usable(tokens: Tokens, now: float) -> bool:
    """Whether a server may still take it. One whose end nobody knows is tried."""
    return tokens.expires is None or now < tokens.expires


def due(tokens: Tokens, now: float, whose: str) -> bool:
    """Whether it is time to refresh. `whose` decides within the spread, always alike."""
    if tokens.expires is None:
        return False
    early = EARLY if tokens.lifetime is None else min(EARLY, SHARE * tokens.lifetime)
    return tokens.expires - now < early * (1 + SPREAD * _chance(whose))


def expiry(
    expires_in: float | None, before: float | None, sent: float
) -> tuple[float | None, float | None]:
    """When what was asked for at `sent` expires, and its lifetime; both None if nobody knows.

    It counts from the asking, so that the way there and back makes it no longer. A server that
    does not say how long is held to what it said last time.
    """
    lifetime = before if expires_in is None else expires_in
    return (None if lifetime is None else sent + lifetime), lifetime


def moved(wall: float, steady: float, wall_before: float, steady_before: float) -> bool:
    """Whether a clock was set between two looks at it and at one that nobody sets."""
    return abs((wall - wall_before) - (steady - steady_before)) > JUMP


def _chance(whose: str) -> float:
    """From -1 to 1."""
    return int.from_bytes(sha256(whose.encode()).digest()[:4]) / 2**31 - 1
