"""The address of a request, taken apart once: what is decided about is what is dialled and sent.

Pure. Only `https`, visible ASCII, no user, no backslash, no fragment. The parts are kept as they
were found; nothing is decoded, collapsed or repaired on the way out.
"""

import re
from dataclasses import dataclass
from typing import Self

from vault.guard.errors import BadTarget
from vault.guard.hosts import NoHost, bracketed, canonical

PORT = 443
LONGEST = 16 * 1024
"""Characters."""
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]/?#@:\\%]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:/[\x21\x23-\x5b\x5d-\x7e]*)?(?:\?[\x21-\x5b\x5d-\x7e]*)?)"
)
"""The path without `"` and backslash; the query without backslash. A `#` is refused below."""
_PATH = re.compile(r"/[\x21\x24-\x5b\x5d-\x7e]*(?:\?[\x21\x22\x24-\x5b\x5d-\x7e]*)?")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes. What it prints as has no path and no query: both may hold secrets."""

    host: str
    """In its one form."""
    port: int
    path: str
    """With its query, as it is sent; begins with a slash."""

    def __post_init__(self) -> None:
        """However it was made, its parts are those of a plain address. BadTarget otherwise."""
        if not 0 < self.port < 65536:
            raise BadTarget(part="port")
        if not _PATH.fullmatch(self.path) or len(self.path) > LONGEST:
            raise BadTarget(part="path")
        try:
            one_form = canonical(self.host)
        except NoHost as wrong:
            raise BadTarget(part="host", problem=str(wrong)) from None
        if one_form != self.host:
            raise BadTarget(part="host", problem="not in its one form")

    @classmethod
    def parse(cls, url: str) -> Self:
        """From a URL. BadTarget names the part that is wrong, and never repeats it."""
        if len(url) > LONGEST:
            raise BadTarget(part="length")
        if not (found := _URL.fullmatch(url)) or "#" in url:
            raise BadTarget(part="form")
        if found["scheme"].lower() != "https":
            raise BadTarget(part="scheme")
        try:
            host = canonical(found["host"])
        except NoHost as wrong:
            raise BadTarget(part="host", problem=str(wrong)) from None
        target = found["target"]
        path = target if target.startswith("/") else f"/{target}"
        return cls(host, int(found["port"] or PORT), path)

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = bracketed(self.host)
        return host if self.port == PORT else f"{host}:{self.port}"

    def same_origin(self, url: str) -> bool:
        """Whether a URL, or a path alone, stays at this host and port."""
        if url.startswith("/") and not url.startswith(("//", "/\\")):
            return True
        try:
            other = Target.parse(url)
        except BadTarget:
            return False
        return (other.host, other.port) == (self.host, self.port)

    def __str__(self) -> str:
        return f"https://{self.authority}"

    def __repr__(self) -> str:
        return f"Target({self})"
