"""The secret managers that the vault's own settings name: `[sources.NAME]` of vault.toml.

Only there is it said what is run, dialled, or shown a token; a credential can but name it.
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.ids import check_name
from carpal.status import Reason
from vault.sources.source import GROUP, Source
from vault.sources.sources import Configured, Sources


def configured(settings: Mapping[str, Mapping[str, Any]]) -> Sources:
    """All of them. CONFIG_INVALID names the one that is wrong, and the setting."""
    return Sources(
        {check_name(name, "sources"): _one(name, each) for name, each in settings.items()}
    )


def _one(name: str, settings: Mapping[str, Any]) -> Configured:
    own = dict(settings)
    plugin = own.pop("plugin", None)
    workspaces = _texts(name, own.pop("workspaces", None), "workspaces", "whose credentials")
    paths = _texts(
        name, own.pop("paths", None), "paths", "which values; one ending in / has all below"
    )
    return Configured(_made(name, plugin, own), workspaces, paths)


def _made(name: str, plugin: object, settings: Mapping[str, Any]) -> Source:
    found = {each.name: each for each in entry_points(group=GROUP)}
    if not isinstance(plugin, str) or plugin not in found:
        raise _bad(name, f"plugin must be one of {', '.join(sorted(found))}")
    try:
        made: Source = found[plugin].load()(settings)
    except (ImportError, ValueError, TypeError, KeyError) as error:
        raise _bad(name, str(error)) from None
    return made


def _texts(name: str, given: object, setting: str, meaning: str) -> tuple[str, ...]:
    if (
        not isinstance(given, list)
        or not given
        or not all(isinstance(each, str) and each for each in given)
    ):
        raise _bad(name, f"{setting} must be a list of texts that says {meaning}")
    return tuple(given)


def _bad(name: str, problem: str) -> CarpalError:
    return refuse(
        Reason.CONFIG_INVALID,
        f"[sources.{name}]: {problem}",
        action="correct the vault's settings",
    )
