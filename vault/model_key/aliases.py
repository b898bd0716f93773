"""Aliases in the safe: where a model's service is, and the key that is shown to it.

An alias is one sealed value, address and all, so nobody points it elsewhere. Calls are those of
the store: one thread, no overlap; what changes anything is in a transaction of the safe.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carpal.errors import invalid, refuse
from carpal.ids import check_name
from carpal.status import Reason
from vault.audit.wrap import fingerprint_key
from vault.guard.addresses import Network, private_network
from vault.guard.errors import BadTarget
from vault.guard.headers import HeaderValue, Slot, bearer
from vault.guard.targets import Target
from vault.safe.safe import Safe
from vault.seal.envelope import Place, policy_hash
from vault.secret import Secret, storable

HEADERS = ("x-api-key", "authorization")
"""How a service wants its key; the second one as a bearer."""
_KIND = "model"
_USE = policy_hash(b"call a model")
_NETWORKS_MAX = 16


@dataclass(frozen=True, slots=True)
class Alias:
    """One, as it is now."""

    name: str
    url: str
    """The service's; paths of its API go below it."""
    header: str
    private: tuple[Network, ...]
    key: Secret
    generation: int

    def target(self, path: str) -> Target:
        """Where a path of the API is."""
        base = Target.parse(self.url)
        return Target(base.host, base.port, base.path.rstrip("/") + path)

    def shown(self) -> tuple[str, HeaderValue]:
        """The header with the key."""
        return (self.header, Slot(self.key) if self.header == HEADERS[0] else bearer(self.key))


def add(
    safe: Safe, name: str, key: bytes, *, url: str, header: str, networks: Sequence[str] = ()
) -> Alias:
    """A new one. INVALID_FIELD; ID_REUSED when there is one of that name."""
    check_name(name, "ALIAS")
    storable(key, "key")
    told = {"url": _url(url), "header": header, "networks": _networks(networks)}
    if safe.holds(_place(name)):
        raise refuse(
            Reason.ID_REUSED,
            f"there is an alias {name!r}",
            action="rotate its key, or remove it first",
        )
    _put(safe, name, told, key)
    return load(safe, name)


def rotate(safe: Safe, name: str, key: bytes) -> Alias:
    """Another key: shown from the next call on. CREDENTIAL_NOT_FOUND, INVALID_FIELD."""
    storable(key, "key")
    told = _told(safe, name)
    _put(safe, name, {each: told[each] for each in ("url", "header", "networks")}, key)
    return load(safe, name)


def remove(safe: Safe, name: str) -> None:
    """Destroy it. CREDENTIAL_NOT_FOUND."""
    _told(safe, name)
    safe.remove(_place(name))


def load(safe: Safe, name: str) -> Alias:
    """One by its name. CREDENTIAL_NOT_FOUND, CREDENTIAL_CORRUPT."""
    told = _told(safe, name)
    return Alias(
        name,
        told["url"],
        told["header"],
        tuple(private_network(each) for each in told["networks"]),
        Secret(told["key"], fingerprint_key(safe)),
        safe.generation(_place(name)),
    )


def names(safe: Safe) -> list[str]:
    """Of all there are."""
    return [place.id for place, _, held in safe.places(_KIND) if held]


def _told(safe: Safe, name: str) -> dict[str, Any]:
    sealed = safe.get(_place(name), _USE)
    if sealed is None:
        raise refuse(Reason.CREDENTIAL_NOT_FOUND, f"there is no model alias {name!r}")
    told: dict[str, Any] = json.loads(sealed)
    return told


def _put(safe: Safe, name: str, told: dict[str, Any], key: bytes) -> None:
    safe.put(_place(name), _USE, json.dumps({**told, "key": key.decode("ascii")}).encode())


def _url(text: str) -> str:
    try:
        target = Target.parse(text)
    except BadTarget as wrong:
        raise invalid("--url", f"must be a plain https URL ({wrong.fields['part']})") from None
    if "?" in target.path:
        raise invalid("--url", "must have no query")
    return f"https://{target.authority}{target.path}"


def _networks(given: Sequence[str]) -> list[str]:
    if len(given) > _NETWORKS_MAX:
        raise invalid("--private-network", f"must be given {_NETWORKS_MAX} times at most")
    try:
        return sorted({str(private_network(each)) for each in given})
    except ValueError as wrong:
        raise invalid("--private-network", str(wrong)) from None


def _place(name: str) -> Place:
    return Place(_KIND, "", "", name, "key")
