"""The heads of HTTP requests and responses: read strictly, and written anew.

Pure. What two readers could understand in two ways is refused, for that is how
a request is smuggled in another one's body. Nothing of a head is passed on that
is meant for the next hop alone, so nothing is upgraded to another protocol.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hands.forwarder import hosts

HEAD_MAX = 32 * 1024
"""Bytes of a head."""
_FIELDS_MAX = 100

Fields = Sequence[tuple[str, str]]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(r"[\x21-\x7e]+")
_LENGTH = re.compile(r"[0-9]{1,18}")
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)", re.IGNORECASE)
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: (.*))?", re.DOTALL)
REFUSED = "carpal-refused"
"""A header of the forwarder's own answers, which it passes on from nobody: who has it over plain
HTTP was refused here. What comes by TLS it does not see, and so it refuses none of that."""
_NEXT_HOP = {
    *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
    *("proxy-authenticate", "proxy-authorization", "upgrade", "http2-settings"),
    REFUSED,
}
_OVERRIDES = {
    *("x-http-method", "x-http-method-override", "x-method-override"),
    *("x-original-url", "x-rewrite-url"),
}
_KNOWN = {"http": 80, "https": 443}


class Refused(Exception):
    """A request is not passed on, or its answer is not."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked the proxy for."""

    method: str
    host: str
    port: int
    tls: bool
    """The forwarder speaks TLS to the host: an https URL was asked for."""
    target: str
    """Path and query; empty for CONNECT."""
    version: str
    fields: Fields
    """To be passed on; without Host and without what frames the body."""
    length: int | None
    """Bytes of the body; None when it comes in chunks."""
    overridden: str = ""
    """A header by which some servers serve another method or path."""

    @property
    def tunnel(self) -> bool:
        """Whether it is a CONNECT."""
        return self.method == "CONNECT"

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def head(self) -> bytes:
        """As it is sent to the host, for one exchange."""
        usual = self.port == _KNOWN["https" if self.tls else "http"]
        host = hosts.bracketed(self.host) if usual else hosts.joined(self.host, self.port)
        framing = _framing(self.length) if self.length != 0 or _may_send(self.method) else []
        fields = [("Host", host), *self.fields, *framing, ("Connection", "close")]
        return _written(f"{self.method} {self.target} {self.version}", fields)


@dataclass(frozen=True, slots=True)
class Response:
    """What a host answered."""

    status: int
    reason: str
    fields: Fields
    length: int | None
    """Bytes of the body; None when it ends with the connection or with its last chunk."""
    chunked: bool

    @property
    def interim(self) -> bool:
        """Another one follows."""
        return self.status < 200

    def head(self, version: str) -> bytes:
        """As the client gets it."""
        fields = list(self.fields)
        if self.chunked:
            fields.append(("Transfer-Encoding", "chunked"))
        if not self.interim:
            fields.append(("Connection", "close"))
        return _written(f"{version} {self.status} {self.reason}", fields)


def request(head: bytes) -> Request:
    """The request whose head, with the empty line at its end, this is. Raises Refused."""
    line, fields = _lines(head)
    parts = line.split(" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise Refused(400, "the request line is not METHOD URL HTTP/1.1")
    method, target, version = parts
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise Refused(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    named = _values(fields, "host")
    if len(named) != 1 and (named or version == "HTTP/1.1"):
        raise Refused(400, "exactly one Host is needed")
    tls, authority, target = _target(method, target)
    host, port = _place(authority)
    if method == "CONNECT" and port is None:
        raise Refused(400, "CONNECT needs host:port")
    port = port or _KNOWN["https" if tls else "http"]
    if named and named[0]:
        _agree(_place(named[0]), host, port)
    length, chunked = _body(fields)
    if chunked and version == "HTTP/1.0":
        raise Refused(400, "HTTP/1.0 has no chunks")
    if method == "CONNECT" and (chunked or length):
        raise Refused(400, "CONNECT has no body")
    return Request(
        method,
        host,
        port,
        tls,
        target,
        version,
        [field for field in _passed(fields) if field[0].lower() not in ("host", "content-length")],
        None if chunked else length or 0,
        next((name for name, _ in fields if name.lower() in _OVERRIDES), ""),
    )


def _target(method: str, target: str) -> tuple[bool, str, str]:
    """Whether by TLS, `host:port`, and path with query."""
    if method == "CONNECT":
        return False, target, ""
    found = _URL.fullmatch(target)
    if found is None:
        raise Refused(400, "a proxy is asked for a whole URL, http://host/path")
    scheme, authority, rest = found.groups()
    if not rest.startswith("/"):
        rest = f"/{rest}"
    return scheme.lower() == "https", authority, rest


def _place(authority: str) -> tuple[str, int | None]:
    try:
        if "@" in authority or not authority.isascii():
            raise ValueError("a host is host or host:port, in ASCII")
        return hosts.split(authority)
    except ValueError as error:
        raise Refused(400, f"no host can be read: {error}") from None


def _agree(named: tuple[str, int | None], host: str, port: int) -> None:
    """Refuse a Host that is not the URL's: who checks one and serves the other is deceived."""
    if named[0] != host or named[1] not in (None, port):
        raise Refused(400, "Host is another than the URL's")


def response(head: bytes, method: str) -> Response:
    """The answer to a `method` whose head this is. Raises Refused, 502, for what is no HTTP."""
    try:
        line, fields = _lines(head)
        length, chunked = _body(fields)
    except Refused as error:
        raise Refused(502, f"the host's answer is not understood: {error.why}") from None
    found = _STATUS.fullmatch(line)
    if found is None or not _VALUE.fullmatch(found.group(3) or ""):
        raise Refused(502, "the host's answer is not HTTP/1.1")
    status = int(found.group(2))
    if status == 101:
        raise Refused(502, "the host changes the protocol, which was not asked for")
    if status < 200 or status in (204, 304) or method == "HEAD":
        length, chunked = 0, False
    return Response(status, found.group(3) or "", _passed(fields), length, chunked)


def answer(status: int, why: str) -> bytes:
    """The forwarder's own answer: the reason for people, in both places where clients show one."""
    text = f"carpal: {why}\n".encode("ascii", "replace")
    # curl and pip show no more of a refused CONNECT than this line.
    reason = re.sub(r"[^\x20-\x7e]+", "?", why)[:300]
    fields = [
        ("Content-Type", "text/plain"),
        ("Content-Length", str(len(text))),
        (REFUSED, "yes"),
        ("Connection", "close"),
    ]
    return _written(f"HTTP/1.1 {status} {reason}", fields) + text


def _lines(head: bytes) -> tuple[str, list[tuple[str, str]]]:
    first, *lines = head.removesuffix(b"\r\n\r\n").decode("latin-1").split("\r\n")
    if len(lines) > _FIELDS_MAX:
        raise Refused(431, f"more than {_FIELDS_MAX} headers")
    fields: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        value = value.strip(" \t")
        # No space before the colon, no folded line, no bare CR or LF, no NUL.
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Refused(400, "a header is malformed")
        fields.append((name, value))
    return first, fields


def _values(fields: Fields, wanted: str) -> list[str]:
    return [value for name, value in fields if name.lower() == wanted]


def _body(fields: Fields) -> tuple[int | None, bool]:
    """Content-Length, and whether the body comes in chunks. Never both, and each once."""
    lengths, codings = _values(fields, "content-length"), _values(fields, "transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise Refused(400, "the body's length is given more than once")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise Refused(400, "Content-Length is no number")
    if codings and codings[0].lower() != "chunked":
        raise Refused(400, "of transfer codings, only chunked is known")
    return int(lengths[0]) if lengths else None, bool(codings)


def _passed(fields: Fields) -> list[tuple[str, str]]:
    """Without what is meant for the next hop: the known ones, and those that Connection names."""
    named = {
        name.strip().lower() for value in _values(fields, "connection") for name in value.split(",")
    }
    # What frames the body is never dropped at a client's word.
    dropped = (named - {"content-length", "host"}) | _NEXT_HOP
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def _may_send(method: str) -> bool:
    return method in ("POST", "PUT", "PATCH")


def _framing(length: int | None) -> list[tuple[str, str]]:
    if length is None:
        return [("Transfer-Encoding", "chunked")]
    return [("Content-Length", str(length))]


def _written(line: str, fields: Fields) -> bytes:
    lines = [line, *(f"{name}: {value}" for name, value in fields)]
    return "".join(f"{text}\r\n" for text in [*lines, ""]).encode("latin-1")
