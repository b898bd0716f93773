"""HashiCorp Vault, or OpenBao: one value of a key-value store of version 2, over the guard.

Nothing is leased: an entry is read, and that is all. The token needs `read` on the paths alone.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vault.guard.addresses import private_network
from vault.guard.errors import BadTarget, GuardError, Malformed, TimedOut, TooLarge
from vault.guard.headers import Headers, Slot
from vault.guard.limits import Limits
from vault.guard.targets import Target
from vault.guard.transport import Guard, Request
from vault.secret import Secret
from vault.sources import kv2
from vault.sources import settings as said
from vault.sources.reference import Reference
from vault.sources.source import Failure, SourceFailed
from vault.sources.token_file import read_token

LIMITS = Limits(
    connect=5.0,
    first_byte=5.0,
    idle=5.0,
    total=10.0,
    request_bytes=0,
    reply_bytes=kv2.SIZE_MAX,
    ratio=20,
)
_MOUNT = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-]+)*")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*/?")
_SETTINGS = ("address", "token_file", "mount", "namespace", "private_networks")


class HashicorpSource:
    """`address`, `token_file`, `mount` (`secret`), `namespace` and `private_networks`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        said.known(settings, _SETTINGS)
        try:
            self._target = Target.parse(said.text(settings, "address").rstrip("/"))
        except BadTarget as wrong:
            raise ValueError(
                f"address must be a plain https URL ({wrong.fields['part']})"
            ) from None
        if self._target.path != "/":
            raise ValueError("address must be a host and a port alone")
        self._token = Path(said.text(settings, "token_file"))
        if not self._token.is_absolute():
            raise ValueError("token_file must be a whole path")
        self._mount = said.text(settings, "mount", "secret").strip("/")
        self._namespace = said.text(settings, "namespace", "").strip("/")
        if not _MOUNT.fullmatch(self._mount):
            raise ValueError("mount must be a name, or names with / between them")
        if self._namespace and not _NAMESPACE.fullmatch(self._namespace):
            raise ValueError("namespace must be a name, or names with / between them")
        networks = said.texts(settings, "private_networks")
        self._private = tuple(private_network(each) for each in networks)
        self._limits = LIMITS

    async def fetch(self, reference: Reference, guard: Guard) -> Secret:
        """As `vault.sources.source.Source`."""
        target = replace(self._target, path=kv2.path(self._mount, reference))
        headers: Headers = [
            ("X-Vault-Token", Slot(read_token(self._token))),
            ("X-Vault-Request", "true"),
            ("Accept", "application/json"),
        ]
        if self._namespace:
            headers = [*headers, ("X-Vault-Namespace", self._namespace)]
        request = Request("GET", target, headers)
        try:
            async with guard.send(request, limits=self._limits, private=self._private) as reply:
                return kv2.read(reference, reply.status, await reply.read())
        except GuardError as error:
            raise SourceFailed(_failure(error), f"{self._target}: {error.code}") from None
        except SourceFailed as failed:
            detail = f"{self._target}: {failed.detail}"
            raise SourceFailed(failed.failure, detail) from None


def _failure(error: GuardError) -> Failure:
    if not error.sent:
        return Failure.UNREACHABLE
    if isinstance(error, TimedOut):
        return Failure.TIMEOUT
    if isinstance(error, Malformed | TooLarge):
        return Failure.MALFORMED
    return Failure.UNREACHABLE
