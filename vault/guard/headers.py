"""Headers that go out and that come back: lists of what may, not of what may not. Pure."""

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vault.guard.errors import BadRequest, Malformed
from vault.secret import Secret

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_SECRET = re.compile(rb"[\x21-\x7e]+")
_MOST = 64
_LONGEST = 16 * 1024

HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
OURS = HOP_BY_HOP | {"host", "content-length", "accept-encoding", "expect"}
"""What the guard says itself, or nobody does."""
CREDENTIALS = frozenset(
    ["authorization", "cookie", "cookie2", "x-api-key", "api-key", "x-auth-token", "x-goog-api-key"]
)
"""Where a caller would put a secret of its own: never beside one of ours."""
KEPT = frozenset(
    ["cache-control", "content-type", "expires", "last-modified", "pragma", "retry-after"]
)
"""What comes back to a caller unless more is asked for by name."""
NEVER_KEPT = OURS | {
    "alt-svc",
    "content-encoding",  # it is undone
    "link",
    "set-cookie",
    "set-cookie2",
}
OF_THE_BODY = frozenset(["content-digest", "content-md5", "digest", "etag", "repr-digest"])
"""Not true any more of a body in which something is struck out."""
_ONCE = frozenset(["content-type", "content-encoding", "content-length", "location"])


@dataclass(frozen=True, slots=True)
class Slot:
    """The one place of a secret in a header. It prints as its secret does."""

    secret: Secret
    before: str = ""
    """`Bearer `, say."""
    user: str | None = None
    """With one, the header is `Basic` and both in base64."""

    def render(self) -> str:
        """The header's value. BadRequest for what is no visible ASCII (V25)."""
        value = self.secret.reveal()
        if not _SECRET.fullmatch(value):
            raise BadRequest(part="secret")
        if self.user is None:
            return self.before + value.decode("ascii")
        if ":" in self.user or not self.user.isprintable():
            raise BadRequest(part="user")
        return "Basic " + b64encode(self.user.encode() + b":" + value).decode("ascii")


HeaderValue: TypeAlias = str | Slot
Headers: TypeAlias = Sequence[tuple[str, HeaderValue]]


def bearer(secret: Secret) -> Slot:
    """`Bearer` and the secret."""
    return Slot(secret, "Bearer ")


def basic(user: str, secret: Secret) -> Slot:
    """A user and the secret as the password."""
    return Slot(secret, user=user)


def outgoing(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers as they are sent. BadRequest for a name or a value that is not."""
    if len(headers) > _MOST:
        raise BadRequest(part="headers", allowed=_MOST)
    seen: set[str] = set()
    rendered = []
    for name, given in headers:
        lower = name.lower()
        if not _NAME.fullmatch(name) or lower in OURS or lower.startswith("proxy-"):
            raise BadRequest(part="header name")
        if lower in seen:
            raise BadRequest(part="header twice", name=lower)
        seen.add(lower)
        value = given.render() if isinstance(given, Slot) else given
        if len(value) > _LONGEST or not _VALUE.fullmatch(value):
            raise BadRequest(part="header value", name=lower)
        rendered.append((name.encode("ascii"), value.encode("ascii")))
    return rendered


def from_caller(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What of a caller's own headers may go on beside a secret of ours (V26).

    Take ours in afterwards: a caller's `Connection: authorization` then reaches only its own.
    """
    pairs = [(name.lower(), value) for name, value in headers]
    named = {
        each.strip().lower()
        for name, value in pairs
        if name == "connection"
        for each in value.split(",")
    }
    dropped = OURS | CREDENTIALS | named
    return [
        (name, value)
        for name, value in pairs
        if name not in dropped and not name.startswith(("proxy-", "x-forwarded", "forwarded"))
    ]


def encoding(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """How a reply's body is compressed, in lower case; empty when it says nothing."""
    named = [value for name, value in headers if name.lower() == b"content-encoding"]
    if len(named) > 1:
        raise Malformed(part="header twice", name="content-encoding")
    return named[0].decode("latin-1").strip().lower() if named else ""


def incoming(
    headers: Iterable[tuple[bytes, bytes]], wanted: Collection[str] = KEPT
) -> Iterator[tuple[str, bytes]]:
    """Of a reply's headers those that are wanted, by name in lower case, each name once.

    Malformed for two content types, encodings or lengths, or two ways to say where the body ends:
    whoever reads them next may take the other one. A value that is not printable ASCII is left out.
    """
    found: dict[str, bytes] = {}
    for raw, value in headers:
        name = raw.decode("ascii", "replace").lower()
        if name in found:
            if name in _ONCE:
                raise Malformed(part="header twice", name=name)
            found[name] += b", " + value
        else:
            found[name] = value
    if "content-length" in found and "transfer-encoding" in found:
        raise Malformed(part="content-length and transfer-encoding")
    for name, value in found.items():
        kept = name in wanted and name not in NEVER_KEPT and not name.startswith("proxy-")
        if kept and _VALUE.fullmatch(value.decode("latin-1")):
            yield name, value
