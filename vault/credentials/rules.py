"""What a credential of each kind says and holds, and what of it never changes. Pure.

A policy is JSON, and no secret. It is kept in one form, so that what it allows can be bound to
the secrets: whoever changes it in the database opens none of them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from carpal.errors import CarpalError, invalid
from carpal.users import check_user
from vault.credentials.references import references, sources_of
from vault.guard.addresses import private_network
from vault.guard.errors import BadTarget
from vault.guard.hosts import HostPattern, NoHost
from vault.guard.targets import Target
from vault.secret import storable

Policy = dict[str, Any]

POLICY_MAX = 16 * 1024
"""Bytes of JSON."""
TEXT_MAX = 512
HOSTS_MAX = NETWORKS_MAX = 16
PER_VAULT = 20
"""Credentials of one vault that are not archived."""
_AUTHENTICATIONS = ("none", "client_secret_basic", "client_secret_post")


class Key(NamedTuple):
    """Which credential."""

    workspace: str
    vault_id: str
    id: str


class Kind(NamedTuple):
    """One kind of credential."""

    name: str
    needed: tuple[str, ...]
    """Secrets that it must have."""
    optional: tuple[str, ...]
    """Secrets that it may have."""
    policy: Callable[[Mapping[str, Any], Policy | None], Policy]
    """Its policy in one form, from what was given and what there was. Raises INVALID_FIELD."""
    key: str
    """The policy's member that is unique in a vault."""


def kind_of(name: str) -> Kind:
    """The kind of that name. INVALID_FIELD when there is none."""
    if name not in KINDS:
        raise invalid("kind", f"must be one of {', '.join(KINDS)}")
    return KINDS[name]


def parsed(data: bytes) -> Mapping[str, Any]:
    """A policy's JSON as it came. INVALID_FIELD."""
    if len(data) > POLICY_MAX:
        raise invalid("policy", f"must have at most {POLICY_MAX} bytes")
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise invalid("policy", "must be one JSON object")
    return value


def encoded(policy: Policy) -> bytes:
    """The one form of a policy."""
    return json.dumps(policy, sort_keys=True, separators=(",", ":")).encode()


def binding(kind: str, policy: Policy) -> tuple[bytes, bytes]:
    """What secrets are bound to: all of the policy but when a token ends, which is no right."""
    return kind.encode(), encoded({k: v for k, v in policy.items() if k != "expires_at"})


def check_secrets(kind: Kind, given: Mapping[str, bytes], policy: Policy, *, new: bool) -> None:
    """INVALID_FIELD for a secret that the kind has not, that is missing, or cannot be kept.

    Also for one that lies elsewhere by `policy`.
    """
    elsewhere = references(policy)
    for name, value in given.items():
        if name not in (*kind.needed, *kind.optional):
            raise invalid(f"secrets.{name[:64]}", f"is no secret of {kind.name}")
        if name in elsewhere:
            raise invalid(
                f"secrets.{name}", f"lies in {elsewhere[name].source!r}: put the new value there"
            )
        storable(value, f"secrets.{name}")
    for name in kind.needed if new else ():
        if name not in given and name not in elsewhere:
            raise invalid(f"secrets.{name}", "is missing")


def url_form(text: Any, field: str) -> str:
    """The one form of an https URL: two that are not the same text are not the same place."""
    if not isinstance(text, str):
        raise invalid(field, "must be an https URL")
    try:
        target = Target.parse(text)
    except BadTarget as wrong:
        raise invalid(field, f"must be a plain https URL ({wrong.fields['part']})") from None
    return f"https://{target.authority}{target.path}"


def _server(given: Mapping[str, Any], before: Policy | None, *more: str) -> Policy:
    _known(given, ("mcp_server_url", "private_networks", *more))
    url = url_form(_kept(given, before, "mcp_server_url"), "policy.mcp_server_url")
    if "?" in url:
        raise invalid("policy.mcp_server_url", "must have no query")
    _same(before, "mcp_server_url", url)
    return {"mcp_server_url": url, "private_networks": _networks(given, before)}


def _static_bearer(given: Mapping[str, Any], before: Policy | None) -> Policy:
    told = {**_server(given, before, "sources", "owner"), **_owner(given, before)}
    return {**told, **sources_of(given, before, ("token",))}


def _owner(given: Mapping[str, Any], before: Policy | None) -> Policy:
    """The end user whose it is, and nobody else's for good; nothing of one that is shared."""
    owner = _kept(given, before, "owner")
    if owner is not None:
        check_user(owner if isinstance(owner, str) else "", "policy.owner")
    _same(before, "owner", owner)
    return {} if owner is None else {"owner": owner}


def _agent_identity(given: Mapping[str, Any], before: Policy | None) -> Policy:
    return _server(given, before)


def _mcp_oauth(given: Mapping[str, Any], before: Policy | None) -> Policy:
    policy = _server(given, before, "expires_at", "refresh", "owner")
    policy |= _owner(given, before)
    expires = given.get("expires_at", (before or {}).get("expires_at"))
    if expires is not None and (isinstance(expires, bool) or not isinstance(expires, int | float)):
        raise invalid("policy.expires_at", "must be seconds since 1970, or null")
    refresh = given.get("refresh", (before or {}).get("refresh"))
    if before is not None and before.get("refresh") is not None and refresh is None:
        raise invalid("policy.refresh", "cannot be taken away: make another credential")
    told = None if refresh is None else _refresh(refresh, (before or {}).get("refresh"))
    return {**policy, "expires_at": expires, "refresh": told}


def _refresh(given: Any, before: Policy | None) -> Policy:
    where = "policy.refresh"
    if not isinstance(given, dict):
        raise invalid(where, "must be an object")
    names = ("client_id", "token_endpoint", "token_endpoint_auth", "resource", "scope")
    _known(given, names, where)
    told: Policy = {**(before or {}), **given}
    endpoint = url_form(told.get("token_endpoint"), f"{where}.token_endpoint")
    client = _text(told.get("client_id"), f"{where}.client_id")
    authentication = told.get("token_endpoint_auth", "none")
    if authentication not in _AUTHENTICATIONS:
        raise invalid(
            f"{where}.token_endpoint_auth", f"must be one of {', '.join(_AUTHENTICATIONS)}"
        )
    _same(before, "token_endpoint", endpoint, where)
    _same(before, "client_id", client, where)
    resource, scope = told.get("resource"), told.get("scope")
    return {
        "client_id": client,
        "token_endpoint": endpoint,
        "token_endpoint_auth": authentication,
        "resource": None if resource is None else _text(resource, f"{where}.resource"),
        "scope": None if scope is None else _text(scope, f"{where}.scope"),
    }


def _environment_variable(given: Mapping[str, Any], before: Policy | None) -> Policy:
    _known(given, ("secret_name", "networking", "injection_location", "sources"))
    name = _kept(given, before, "secret_name")
    if not isinstance(name, str) or not name.isascii() or not name.isidentifier():
        raise invalid("policy.secret_name", "must be a name of letters, digits and '_'")
    if len(name) > 128:
        raise invalid("policy.secret_name", "must have at most 128 characters")
    _same(before, "secret_name", name)
    networking = given.get("networking", (before or {}).get("networking"))
    return {
        "secret_name": name,
        "networking": _networking(networking),
        "injection_location": _places(given, before),
        **sources_of(given, before, ("secret_value",)),
    }


def _networking(given: Any) -> Policy:
    where = "policy.networking"
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "unrestricted":
        _known(given, ("type",), where)
        return {"type": "unrestricted"}
    if kind != "limited":
        raise invalid(where, 'needs a "type": "limited", with "allowed_hosts", or "unrestricted"')
    _known(given, ("type", "allowed_hosts"), where)
    hosts = given.get("allowed_hosts")
    if not isinstance(hosts, list) or not 0 < len(hosts) <= HOSTS_MAX:
        raise invalid(f"{where}.allowed_hosts", f"must be 1 to {HOSTS_MAX} hosts")
    found = []
    for each in hosts:
        try:
            found.append(str(HostPattern.parse(each if isinstance(each, str) else "")))
        except NoHost as wrong:
            raise invalid(f"{where}.allowed_hosts", str(wrong)) from None
        if ":" in found[-1]:
            raise invalid(f"{where}.allowed_hosts", "an IPv6 address cannot be named")
    return {"type": "limited", "allowed_hosts": sorted(set(found))}


def _places(given: Mapping[str, Any], before: Policy | None) -> Policy:
    """Without the object both; in a new one a missing member is no, in a change as it was."""
    where = "policy.injection_location"
    if "injection_location" not in given:
        return dict((before or {}).get("injection_location", {"header": True, "body": True}))
    told = given["injection_location"]
    if not isinstance(told, dict):
        raise invalid(where, 'must be an object of "header" and "body"')
    _known(told, ("header", "body"), where)
    start = (before or {}).get("injection_location", {"header": False, "body": False})
    merged = {**start, **told}
    if not all(isinstance(value, bool) for value in merged.values()):
        raise invalid(where, "must be true or false")
    if not any(merged.values()):
        raise invalid(where, "must name a place: header, body, or both")
    return merged


def _networks(given: Mapping[str, Any], before: Policy | None) -> list[str]:
    told = given.get("private_networks", (before or {}).get("private_networks", []))
    if not isinstance(told, list) or len(told) > NETWORKS_MAX:
        raise invalid("policy.private_networks", f"must be up to {NETWORKS_MAX} networks")
    try:
        return sorted(
            {str(private_network(each if isinstance(each, str) else "")) for each in told}
        )
    except ValueError as wrong:
        raise invalid("policy.private_networks", str(wrong)) from None


def _known(given: Mapping[str, Any], names: tuple[str, ...], where: str = "policy") -> None:
    for name in given:
        if name not in names:
            raise invalid(f"{where}.{name[:64]}", f"is not known; there are {', '.join(names)}")


def _kept(given: Mapping[str, Any], before: Policy | None, name: str) -> Any:
    return given.get(name, (before or {}).get(name))


def _same(before: Policy | None, name: str, now: Any, where: str = "policy") -> None:
    if before is not None and before.get(name) != now:
        raise _fixed(f"{where}.{name}")


def _fixed(field: str) -> CarpalError:
    return invalid(field, "cannot be changed: make another credential, and archive this one")


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= TEXT_MAX:
        raise invalid(field, f"must be a text of 1 to {TEXT_MAX} characters")
    return value


KINDS = {
    each.name: each
    for each in (
        Kind("static_bearer", ("token",), (), _static_bearer, "mcp_server_url"),
        Kind(
            "mcp_oauth",
            ("access_token",),
            ("refresh_token", "client_secret"),
            _mcp_oauth,
            "mcp_server_url",
        ),
        Kind("agent_identity", (), (), _agent_identity, "mcp_server_url"),
        Kind("environment_variable", ("secret_value",), (), _environment_variable, "secret_name"),
    )
}
