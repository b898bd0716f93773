"""What a key-value store of HashiCorp Vault, version 2, is asked, and what its answers mean. Pure.

    GET /v1/MOUNT/data/PATH[?version=N]  →  {"data": {"data": {KEY: VALUE}, "metadata": {…}}}

OpenBao answers alike. What such a store says in words is for nobody: it may be the secret.
"""

from carpal.json_in import plain_object
from vault.secret import Secret
from vault.sources.reference import Reference
from vault.sources.source import Failure, SourceFailed

SIZE_MAX = 1024 * 1024
"""Bytes of an answer: what one entry of a store may have by default."""
_BUSY = frozenset((412, 429, 472, 473, 500, 502, 503, 504))
"""It is behind, standing by, sealed, not ready, or a proxy before it says so."""


def path(mount: str, reference: Reference) -> str:
    """What is asked for."""
    version = "" if reference.version is None else f"?version={reference.version}"
    return f"/v1/{mount}/data/{reference.path}{version}"


def read(reference: Reference, status: int, body: bytes) -> Secret:
    """The value of an answer. Raises SourceFailed."""
    if status in (401, 403):
        raise SourceFailed(Failure.REFUSED, f"it answered {status}")
    if status in _BUSY:
        raise SourceFailed(Failure.UNAVAILABLE, f"it answered {status}")
    if status not in (200, 404):
        raise SourceFailed(Failure.MALFORMED, f"it answered {status}")
    said = plain_object(body, size=SIZE_MAX)
    told = said.get("data") if said is not None else None
    if status == 404 or not isinstance(told, dict):
        raise _missing(status, told)
    values, about = told.get("data"), told.get("metadata")
    if not isinstance(values, dict) or not isinstance(about, dict):
        raise _malformed("what it answers is no entry of a store of version 2")
    if reference.version is not None and about.get("version") != reference.version:
        raise _malformed("it answered another version than it was asked for")
    if reference.key not in values:
        raise SourceFailed(Failure.MISSING, "the entry has no such key")
    value = values[reference.key]
    if not isinstance(value, str):
        raise SourceFailed(Failure.UNUSABLE, "what the key has is no text")
    return Secret(value)


def _missing(status: int, told: object) -> SourceFailed:
    if status == 200:
        return _malformed("what it answers is not JSON of a store")
    about = told.get("metadata") if isinstance(told, dict) else None
    if isinstance(about, dict) and (about.get("destroyed") or about.get("deletion_time")):
        return SourceFailed(Failure.DELETED, "that version was deleted or destroyed")
    return SourceFailed(Failure.MISSING, "there is nothing at that path, or of that version")


def _malformed(detail: str) -> SourceFailed:
    return SourceFailed(Failure.MALFORMED, detail)
