"""The keys that sign tokens, each through its three times: published, signing, still known. Pure.

A key is published before it signs anything, so that whoever verifies knows it by then; and it is
known until the last token that it signed has ended. Its private half is gone as soon as it signs
nothing more.
"""

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

LIFE = 300
"""Seconds that a token is good for."""
SKEW = 60
"""Seconds of these that lie before it was made: a server's clock may be so far behind ours."""
KNOWN = 3_600
"""Seconds that a key is published for once it signs nothing more."""
PUBLISHED = 86_400
"""Seconds that a key must have been published before it signs: documents are cached meanwhile."""
Jwk = dict[str, str]


@dataclass(frozen=True, slots=True)
class Key:
    """One that signs, or will."""

    der: bytes = field(repr=False)
    """Its private half, PKCS #8."""
    jwk: Jwk

    @property
    def id(self) -> str:
        """Its `kid`: the thumbprint of its public half."""
        return self.jwk["kid"]

    def private(self) -> ec.EllipticCurvePrivateKey:
        """To sign with."""
        found = serialization.load_der_private_key(self.der, password=None)
        assert isinstance(found, ec.EllipticCurvePrivateKey)
        return found


@dataclass(frozen=True, slots=True)
class Keys:
    """All that an issuer has."""

    url: str
    """Where its documents are: the tokens' `iss`."""
    signing: Key
    next: Key
    published: int = 0
    """Unix seconds when the next one was written out first; 0 when it was not."""
    old: tuple[tuple[Jwk, int], ...] = ()
    """Public halves, each with the Unix seconds since which it signs nothing."""

    def known(self, now: int) -> list[Jwk]:
        """What is to be published: the one that signs, the next, and those before."""
        before = [jwk for jwk, since in self.old if now - since < KNOWN]
        return [self.signing.jwk, self.next.jwk, *before]

    def was_published(self, now: int) -> "Keys":
        """The next one is written out."""
        return self if self.published else replace(self, published=now)

    def left(self, now: int) -> int:
        """Seconds until the next one may sign; -1 when it was never published."""
        return max(0, self.published + PUBLISHED - now) if self.published else -1

    def turned(self, new: ec.EllipticCurvePrivateKey, now: int) -> "Keys":
        """The next one signs from now on, and `new` is next."""
        kept = [(jwk, since) for jwk, since in self.old if now - since < KNOWN]
        return Keys(self.url, self.next, key(new), old=((self.signing.jwk, now), *kept))


def key(private: ec.EllipticCurvePrivateKey) -> Key:
    """With its public half as a JWK; the id is its thumbprint (RFC 7638)."""
    numbers = private.public_key().public_numbers()
    x, y = (text64(each.to_bytes(32)) for each in (numbers.x, numbers.y))
    named = {"crv": "P-256", "kty": "EC", "x": x, "y": y}
    found = sha256(json.dumps(named, separators=(",", ":")).encode()).digest()
    der = private.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Key(der, {**named, "alg": "ES256", "use": "sig", "kid": text64(found)})


def text64(data: bytes) -> str:
    """Base64url without padding."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def written(keys: Keys) -> bytes:
    """As it is sealed."""
    told: dict[str, Any] = {
        "url": keys.url,
        "signing": (b64encode(keys.signing.der).decode(), keys.signing.jwk),
        "next": (b64encode(keys.next.der).decode(), keys.next.jwk),
        "published": keys.published,
        "old": keys.old,
    }
    return json.dumps(told).encode()


def read(sealed: bytes) -> Keys:
    """From what was sealed."""
    told = json.loads(sealed)
    return Keys(
        told["url"],
        _key(told["signing"]),
        _key(told["next"]),
        told["published"],
        tuple((jwk, since) for jwk, since in told["old"]),
    )


def _key(told: tuple[str, Jwk]) -> Key:
    return Key(b64decode(told[0]), told[1])
