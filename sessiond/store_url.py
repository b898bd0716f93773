"""The URL of a store: what may stand in it, and how it is named to people. Pure.

Nothing that is said about a wrong one quotes it: any part of it may be of a password.
"""

import re
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from carpal.errors import CarpalError, refuse
from carpal.status import Reason

SCHEMES = ("postgresql", "postgres")
_NOT_ENCODED = re.compile(r"%(?![0-9a-fA-F]{2})|%00")
_SECRETS = {"oauth_client_secret", "scram_client_key", "scram_server_key"}
"""Parameters that are secrets, besides those with `password` in their names."""
_PORT_MAX = 65535


def check(url: str, *, from_argv: bool = False) -> str:
    """The URL; CONFIG_INVALID when it names no store, or shows a password to the machine."""
    try:
        parts = urlsplit(url)
        named = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        raise bad("--store is no URL") from None
    if parts.scheme not in SCHEMES:
        raise bad("--store must be postgresql://USER@HOST/DATABASE")
    secret = any("password" in key.lower() or key in _SECRETS for key in named)
    if from_argv and (secret or parts.password is not None):
        # Everyone on the machine can read the arguments of a process.
        raise refuse(
            Reason.CONFIG_INVALID,
            "--store holds a password, which every user of this machine could read",
            action="leave it out, and put it in ~/.pgpass, a file named by PGPASSFILE or "
            "?passfile=, PGPASSWORD, or give the whole URL as CARPAL_STORE or in sessiond.toml",
        )
    if not url.isprintable():
        raise bad("--store has a character that no URL has")
    if _NOT_ENCODED.search(url):
        raise bad("--store has a % that is not %25, or another code of two digits")
    # Ours and PostgreSQL's library would each find the host elsewhere.
    if url.partition("://")[2].count("@") > parts.netloc.count("@") or (
        parts.netloc.count("@") > 1 or "#" in url
    ):
        raise bad(
            "--store has one of / ? # @ where it means something else: "
            "in a user or password they are %2F %3F %23 %40"
        )
    if not all(map(_is_port, _ports(parts, named))):
        raise bad(f"--store has a port that is not a number from 1 to {_PORT_MAX}")
    return url


def name(url: str) -> str:
    """Where it is, without user and password, on one line: for messages and logs."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]
    return " ".join(f"postgresql://{unquote(hosts)}/{unquote(parts.path.lstrip('/'))}".split())


def bad(problem: str) -> CarpalError:
    """CONFIG_INVALID of the URL; the problem must not quote it."""
    return refuse(
        Reason.CONFIG_INVALID,
        problem,
        action="correct it (postgresql://USER@HOST/DATABASE), or leave it out: "
        "sessions are then in SQLite",
    )


def _ports(parts: SplitResult, named: dict[str, list[str]]) -> list[str]:
    """As they are written; a host without one has none."""
    hosts = parts.netloc.rpartition("@")[2].split(",")
    # Of an IPv6 address the colons are inside of brackets.
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    return [unquote(port) for port in ports] + ",".join(named.get("port", [])).split(",")


def _is_port(text: str) -> bool:
    return not text or (text.isdecimal() and text.isascii() and 0 < int(text[:6]) <= _PORT_MAX)
