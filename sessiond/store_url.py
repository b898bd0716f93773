"""The URL of a store: what may stand in it, and how it is named to people. Pure."""

from urllib.parse import parse_qs, unquote, urlsplit

from carpal.errors import refuse
from carpal.status import Reason

SCHEMES = ("postgresql", "postgres")


def check(url: str, *, from_argv: bool = False) -> str:
    """The URL; CONFIG_INVALID when it names no store, or shows a password to the machine."""
    try:
        parts = urlsplit(url)
        password = parts.password is not None or "password" in parse_qs(parts.query)
    except ValueError:
        raise _bad("--store is no URL") from None
    if parts.scheme not in SCHEMES:
        raise _bad("--store must be postgresql://USER@HOST/DATABASE")
    if password and from_argv:
        # Everyone on the machine can read the arguments of a process.
        raise refuse(
            Reason.CONFIG_INVALID,
            "--store holds a password, which every user of this machine could read",
            action="leave it out, and put it in ~/.pgpass, a file named by PGPASSFILE or "
            "?passfile=, PGPASSWORD, or give the whole URL as CARPAL_STORE or in sessiond.toml",
        )
    return url


def name(url: str) -> str:
    """Where it is, without user and password: for messages and logs."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]
    return f"postgresql://{unquote(hosts)}/{unquote(parts.path.lstrip('/'))}"


def _bad(problem: str) -> Exception:
    return refuse(
        Reason.CONFIG_INVALID, problem, action="or leave it out: sessions are then in SQLite"
    )
