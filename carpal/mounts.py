"""What a mount's `source_ref` and `mount_path` say, the same for whoever asks and whoever makes it.

Pure. `blob:<sha256>` is a file, `tar:<sha256>` an archive that is unpacked,
`text:<the text itself>` a file, `git:<URL>[#<branch, tag or commit>]` a clone,
`session:<id>[#<from>-<through>]` a log as files, which reaches a hand as a `tar:`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from carpal.errors import CarpalError, invalid, refuse
from carpal.status import Reason

MOUNTS_MAX = 100
"""Of one hand."""
WORKSPACE = "/workspace"
"""What stands for a hand's workspace in a mount's path, wherever that really is."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REF = re.compile(r"[0-9A-Za-z_][0-9A-Za-z._/+-]{0,199}")
_PATH_MAX = 1024
_OWN = ("localhost", "127.0.0.1", "::1")
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_PART = re.compile(r"([0-9]{0,15})-([0-9]{0,15})")
_KINDS = (
    "blob:<sha256>, tar:<sha256>, text:<text>, git:<https URL>[#<branch or commit>] "
    "or session:<id>[#<from>-<through>]"
)
ITSELF = "self"
"""Stands for the id of the very session that mounts its log."""

Kind = Literal["blob", "tar", "text", "git", "session"]


@dataclass(frozen=True, slots=True)
class Mount:
    """One source, and where in the workspace it goes."""

    kind: Kind
    source: str
    """A blob's SHA-256 in hex, the text itself, a repository's URL, or a session's id."""
    path: str
    """From the workspace on, without `.` or `..` in it; `.` alone is the workspace."""
    ref: str = ""
    """Of a repository: a branch, tag or commit; empty for its own default. Of a session: which
    positions, as `12-90`, `12-` or `-90`; empty for all."""

    @property
    def digest(self) -> bytes:
        """Of a blob or an archive."""
        return bytes.fromhex(self.source)

    @property
    def positions(self) -> tuple[int, int]:
        """Of a session: the first position, and the last, which is 0 for the head."""
        first, _, last = self.ref.partition("-")
        return int(first or 1), int(last or 0)

    def __str__(self) -> str:
        """In a few words, for people and for the model."""
        if self.kind == "text":
            return f"{self.path} (text)"
        at = f" at {self.ref}" if self.ref else ""
        return f"{self.path} ({self.kind} {self.source[:200]}{at})"


def parse(source_ref: str, mount_path: str, field: str = "mount") -> Mount:
    """What both say. INVALID_FIELD names `field` and which of the two is wrong."""
    kind, colon, source = source_ref.partition(":")
    named = f"{field}.source_ref"
    path = _path(mount_path, f"{field}.mount_path")
    if kind == "session" and colon:
        return _session(source, path, named)
    if kind in ("blob", "tar"):
        if not _DIGEST.fullmatch(source):
            raise invalid(named, f"{kind}: wants a SHA-256 as 64 hex digits in lower case")
    elif kind == "git":
        return _git(source, path, named)
    elif kind != "text" or not colon:
        raise invalid(named, f"{source_ref[:80]!r} is not {_KINDS}")
    if kind != "tar" and path == ".":
        raise invalid(f"{field}.mount_path", "must be that of a file, not the workspace itself")
    return Mount(kind, source, path)  # type: ignore[arg-type] # one of those by now


def refuse_twice(mounts: Sequence[Mount], field: str) -> None:
    """INVALID_FIELD for two on one path, where only the last would be; archives add up."""
    first: dict[str, tuple[int, Mount]] = {}
    for index, mount in enumerate(mounts):
        before, other = first.setdefault(mount.path, (index, mount))
        if before != index and not mount.kind == other.kind == "tar":
            problem = f"{mount.path!r} is the path of {field}[{before}] already"
            raise invalid(f"{field}[{index}].mount_path", problem)


def digest_of(source_ref: str) -> bytes | None:
    """The digest of the blob that a reference names; None when it names none."""
    kind, _, source = source_ref.partition(":")
    if kind in ("blob", "tar") and _DIGEST.fullmatch(source):
        return bytes.fromhex(source)
    return None


def _path(given: str, field: str) -> str:
    inside = given
    if given == WORKSPACE or given.startswith(f"{WORKSPACE}/"):
        inside = given[len(WORKSPACE) :].lstrip("/")
    if inside.startswith("/"):
        raise invalid(field, f"{given[:80]!r} is outside the workspace; begin with {WORKSPACE}/")
    if not given or "\0" in given or len(given.encode("utf-8", "replace")) > _PATH_MAX:
        raise invalid(field, f"must be 1 to {_PATH_MAX} bytes of a path")
    parts = [part for part in inside.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise invalid(field, f"{given[:80]!r} must not hold '..'")
    return "/".join(parts) or "."


def _session(source: str, path: str, field: str) -> Mount:
    session_id, hash_, ref = source.partition("#")
    if not _ID.fullmatch(session_id):
        raise invalid(field, f"session: {session_id[:80]!r} is no session's id, nor {ITSELF!r}")
    mount = Mount("session", session_id, path, ref)
    if hash_ and (ref == "-" or not _PART.fullmatch(ref)):
        raise invalid(field, f"session: {ref[:80]!r} is not like 12-90, 12- or -90")
    first, last = mount.positions
    if not first or (last and last < first):
        raise invalid(field, f"session: {ref!r} holds no position; they begin with 1")
    return mount


def _git(source: str, path: str, field: str) -> Mount:
    url, _, ref = source.partition("#")
    try:
        split = urlsplit(url)
        host, _ = split.hostname, split.port
    except ValueError:
        host, split = None, urlsplit("")
    if problem := _git_problem(split.scheme, host, url):
        raise invalid(field, f"git: {problem}")
    if split.username or split.password:
        raise invalid(field, "git: the URL must not hold a name or a password: a log keeps it")
    if ref and (not _REF.fullmatch(ref) or ".." in ref):
        raise invalid(field, f"git: {ref[:80]!r} is not the name of a branch, a tag or a commit")
    return Mount("git", url, path, ref)


def _git_problem(scheme: str, host: str | None, url: str) -> str:
    if not host or not all(" " < letter < "\x7f" for letter in url):
        return f"{url[:80]!r} is not a URL such as https://example.com/repository.git"
    # What comes in the clear can be changed on its way; on this very machine there is no way.
    if scheme == "https" or (scheme == "http" and host in _OWN):
        return ""
    return f"the URL must begin with https://, not {scheme}://"


def as_error(index: int, path: str, why: str, reason: Reason) -> CarpalError:
    """What became of a mount that could not be made."""
    return refuse(reason, f"mounts[{index}] ({path}): {why}", field=f"mounts[{index}].source_ref")
