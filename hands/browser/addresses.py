"""Which addresses a browser hand goes to: http and https, and the empty page. Pure.

The browser itself holds to that too, by the policy beside this file, wherever a navigation comes
from: a link, a redirect, a frame, a script. This is what a model that asks for another is told.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from hands.forwarder.heads import REFUSED

HISTORY = ("back", "forward", "reload")
BLANK = "about:blank"
LONGEST = 2048
ONLY = "a browser hand goes to http and https addresses only"
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_PORT = re.compile(r"[^/?#]*:\d{1,5}(?:[/?#]|$)")
_ORIGIN = re.compile(r"https?://[^/?#@\s]+")
_BLOCKED = ("ERR_BLOCKED_BY_ADMINISTRATOR", "ERR_UNSAFE_REDIRECT", "ERR_UNKNOWN_URL_SCHEME")
_UNSENT = (
    *("ERR_BLOCKED_BY_ADMINISTRATOR", "ERR_UNKNOWN_URL_SCHEME", "ERR_INVALID_URL"),
    *("ERR_TUNNEL_CONNECTION_FAILED", "ERR_PROXY_CONNECTION_FAILED", "ERR_CERT"),
)
UNREACHED = (
    "no egress rule of this hand allows the host, or it is not reached from the daemon's machine"
)
_NO_TUNNEL = "ERR_TUNNEL_CONNECTION_FAILED"
_WHY = {
    _NO_TUNNEL: UNREACHED,
    "ERR_PROXY_CONNECTION_FAILED": "the daemon is away, and with it the way out; try again",
    "ERR_HTTP_RESPONSE_CODE_FAILURE": "it answered with an error, and with no page",
    "ERR_EMPTY_RESPONSE": "it ended without an answer",
    "ERR_CERT": "its certificate is not trusted",
    "ERR_TOO_MANY_REDIRECTS": "it redirects again and again",
    "ERR_INVALID_URL": "it is no URL",
    "ERR_ABORTED": "the page ended it: it may have been a download, or another navigation",
    "ERR_INVALID_AUTH_CREDENTIALS": "it asks for a name and a password",
}


def meant(given: str) -> tuple[str, str]:
    """The URL that is meant, and why the browser does not go there; one of them is empty."""
    url = given.strip()
    if url.lower() in HISTORY or url.lower() == BLANK:
        return url.lower(), ""
    if len(url) > LONGEST:
        return "", f"the URL has {len(url)} characters; it may have {LONGEST}"
    scheme = _SCHEME.match(url)
    # `localhost:8080/x` has no scheme: what a colon and a port follow is a host.
    if scheme is None or (_PORT.match(url) and "//" not in url[: scheme.end() + 2]):
        url = f"https://{url}"
    elif scheme[1].lower() not in ("http", "https"):
        return "", f"{scheme[1].lower()}: is refused: {ONLY}"
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and (parts.port or True)
    except ValueError:
        whole = False
    return (url, "") if whole else ("", f"{given[:200]!r} is no URL: say it as https://host/path")


def origin(url: str) -> str:
    """Of a page of the web; empty for another, or one whose name is of no use."""
    found = _ORIGIN.match(url)
    return found[0].lower() if found and len(found[0]) <= LONGEST else ""


def allowed(url: str) -> bool:
    """The browser's policy lets a page go there: the pages' own empty and made ones too."""
    return url.partition(":")[0].lower() in ("", "http", "https", "blob", "about", "javascript")


def refused(error: str) -> bool:
    """The browser held to its policy: it says so by such an error."""
    return any(each in error for each in _BLOCKED)


def by_forwarder(url: str, headers: Mapping[str, str]) -> bool:
    """The forwarder answered in the host's place, whatever hosts say: names in lower case."""
    return REFUSED in headers and url.lower().startswith("http:")


def unreached(error: str) -> bool:
    """The forwarder did not lead there."""
    return _NO_TUNNEL in error


def unsent(error: str) -> bool:
    """Nothing was sent to the host: it was ended before. Of a redirect that is so of its end."""
    return any(each in error for each in _UNSENT)


def why(error: str) -> str:
    """Why a navigation failed, by what the browser says of it."""
    if refused(error):
        return f"it was refused: {ONLY}, also by a redirect"
    for name, text in _WHY.items():
        if name in error:
            return text
    found = re.search(r"net::(ERR_\w+)", error)
    return found[1] if found else error.splitlines()[0][:200] if error else "it failed"
