"""The providers a brain may ask: `[providers.NAME]` of brain.toml, checked. Pure.

The four kinds are there without a word, each by the ambient settings of its
package; a table adds one, or says more about one of these.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from carpal.errors import CarpalError, refuse
from carpal.status import Reason

Kind = Literal["anthropic", "bedrock", "vertex", "foundry"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]

_ALIAS = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OF_KIND = {
    "region": ("bedrock", "vertex"),
    "profile": ("bedrock",),
    "project": ("vertex",),
    "resource": ("foundry",),
}
"""Settings that only some kinds have."""
_FILES = ("ca_bundle", "client_certificate", "client_key")
_OURS = "server_name"
_NOT_BY_VAULT = ("base_url", "token_command", *_FILES)
"""What the vault, or the brain's own identity, says in place of settings."""
_AUTHORITY = {"authorization", "x-api-key", "api-key"}


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to a model."""

    kind: Kind
    base_url: str = ""
    """Where it is, if not where the package looks."""
    headers: dict[str, str] = {}
    """Sent with every request."""
    ca_bundle: str = ""
    """A PEM file: the authorities its certificate may be from, and no others."""
    client_certificate: str = ""
    """A PEM file: the certificate shown to it, with the chain, and the key unless `client_key`."""
    client_key: str = ""
    token_command: list[str] = []
    """A program and its arguments that print a token; it is sent as `Authorization: Bearer`."""
    token_seconds: Seconds = 300.0
    """How long a token is good when the command does not say."""
    token_timeout: Seconds = 30.0
    """How long the command may take."""
    region: str = ""
    profile: str = ""
    project: str = ""
    resource: str = ""
    lacks: list[str] = []
    """Features that are left out of its requests, beside those that its kind lacks."""
    connect_timeout: Seconds = 10.0
    first_timeout: Seconds = 300.0
    """From the request to the first byte of its answer."""
    idle_timeout: Seconds = 120.0
    """Between two pieces of a stream; the service sends pings while the model thinks."""
    whole_timeout: Seconds = 3600.0
    """From the request to the end of the reply."""
    vault: str = ""
    """An alias of the vault, which is asked in the service's place and has its key."""
    server_name: str = ""
    """Whom the certificate must be of, where that is not `base_url`'s host; no setting."""

    def files(self) -> dict[str, Path]:
        """What is read to connect, by setting; when one changed, connections are made anew."""
        named = {name: getattr(self, name) for name in _FILES}
        return {name: Path(path) for name, path in named.items() if path}


def read_providers(tables: Mapping[str, Any]) -> dict[str, Provider]:
    """Every provider by name; CONFIG_INVALID names the table and the key."""
    known = [field.name for field in msgspec.structs.fields(Provider) if field.name != _OURS]
    named: dict[str, Provider] = {kind: Provider(kind=kind) for kind in KINDS}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise _bad(name, "is not a table", f"write [providers.{name}]")
        if extra := sorted(set(table) - set(known)):
            raise _bad(name, f"unknown key {extra[0]!r}", f"use one of: {', '.join(known)}")
        given = dict(table)
        if "kind" not in given and name in KINDS:
            given["kind"] = name
        if "kind" not in given:
            raise _bad(name, "kind is not set", f"set it to one of: {', '.join(KINDS)}")
        try:
            provider = msgspec.convert(given, Provider)
        except msgspec.ValidationError as error:
            raise _explain(name, str(error)) from None
        if problem := _nonsense(provider) or _not_by_vault(provider):
            raise _bad(name, *problem)
        named[name] = provider
    return named


def _nonsense(provider: Provider) -> tuple[str, str] | None:
    """What no type forbids, and what to do about it."""
    if provider.base_url:
        url = urlsplit(provider.base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            return f"base_url: {provider.base_url!r} is no address", "write https://HOST/…"
        if url.username or url.password:
            return "base_url: it holds a password", "use token_command"
    for key, kinds in _OF_KIND.items():
        if getattr(provider, key) and provider.kind not in kinds:
            return f"{key}: {provider.kind} has none", f"it is for {' and '.join(kinds)}"
    if provider.resource and provider.base_url:
        return "resource: base_url is given too", "keep one of them"
    if provider.client_key and not provider.client_certificate:
        return "client_key: there is no client_certificate", "give both, or neither"
    for header, value in provider.headers.items():
        if not _HEADER.fullmatch(header):
            return f"headers: {header!r} is no name of a header", "correct it"
        if not value.isprintable():
            return f"headers: the value of {header!r} is not one line of text", "correct it"
        if header.lower() in _AUTHORITY and provider.token_command:
            return f"headers: {header!r} is what token_command makes", "keep one of them"
    if provider.token_command and not all(provider.token_command):
        return "token_command: an argument is empty", "write [PROGRAM, ARGUMENT, …]"
    return None


def _not_by_vault(provider: Provider) -> tuple[str, str] | None:
    """What does not go with an alias of the vault."""
    if not provider.vault:
        return None
    if not _ALIAS.fullmatch(provider.vault):
        return f"vault: {provider.vault!r} is no alias", "use one of `carpal vault model list`"
    if provider.kind != "anthropic":
        return "vault: it goes with kind anthropic alone", "use that kind, or remove it"
    for key in _NOT_BY_VAULT:
        if getattr(provider, key):
            return f"{key}: vault is given too", "keep one of them"
    if found := {each.lower() for each in provider.headers} & _AUTHORITY:
        return f"headers: {min(found)!r} is what the vault shows", "remove it"
    return None


def by_vault(
    providers: Mapping[str, Provider], address: str, name: str, identity: Mapping[str, str]
) -> dict[str, Provider]:
    """Those that name an alias, led to the vault that listens there.

    `name`: whom its certificate must be of; `identity`: the files of the brain's own, by setting.
    """
    return {
        each: msgspec.structs.replace(
            provider,
            base_url=f"https://{address}/model/{provider.vault}",
            server_name=name,
            **identity,
        )
        if provider.vault
        else provider
        for each, provider in providers.items()
    }


def _explain(name: str, text: str) -> CarpalError:
    problem, _, path = text.partition(" - at `$.")
    key = path.rstrip("`") or "kind"
    hint = f"use one of: {', '.join(KINDS)}" if key == "kind" else "correct the value"
    return _bad(name, f"{key}: {problem[:1].lower()}{problem[1:]}", hint)


def _bad(name: str, problem: str, action: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, f"providers.{name}: {problem}", action=action)
