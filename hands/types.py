"""The hand types this machine has: whoever registered under `carpal.hand_types`."""

import logging
import os
import re
from collections.abc import Container, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, get_args, runtime_checkable

from carpal.errors import CarpalError, invalid, refuse
from carpal.status import Reason
from hands.builtin.plugin import PluginType
from hands.builtin.socket import SocketType
from hands.contract import HandType

log = logging.getLogger(__name__)

Sandbox = Literal["auto", "off", "required"]
"""Whether hands get a sandbox: where one can be made, never, or else no hand."""


_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LONGEST = 107
"""Bytes that a unix socket's address holds."""


@runtime_checkable
class Sandboxing(Protocol):
    """A type whose hands may get a sandbox."""

    sandbox: str
    """`auto`, `off` or `required`."""


def installed(
    sandbox: str = "auto",
    sockets: Mapping[str, Path] = MappingProxyType({}),
    *,
    daemon: bool = True,
) -> dict[str, HandType]:
    """By name. One whose extra is not installed is left out, and the log says so.

    `sockets` are hand servers of someone's own, by the type's name. Raises CONFIG_INVALID for one
    whose name is taken. Without `daemon` they are for a command alone.

    Nothing is imported but those that run in it: what is written as others write theirs has a
    process of its own. A name that is taken stays who had it: ours first, then the first that
    Python finds.
    """
    if sandbox not in get_args(Sandbox):
        raise invalid("sandbox", f"{sandbox!r} is none of {', '.join(get_args(Sandbox))}")
    found: dict[str, HandType] = {}
    for entry, taken_by in registered():
        if taken_by:
            about = {"type": entry.name, "taken_by": taken_by, "left_out": entry.value}
            log.warning("two hand types have one name", extra=about)
            continue
        try:
            found[entry.name] = made(entry, sandbox)
        except ImportError as error:
            log.warning("hand type left out", extra={"type": entry.name, "why": str(error)})
    for name, path in sockets.items():
        found[name] = served(name, path, found, daemon=daemon)
    return found


def served(
    name: str,
    path: Path,
    taken: Container[str] = (),
    *,
    daemon: bool = True,
    exactly: bool = False,
) -> SocketType:
    """The type of a hand server of someone's own. CONFIG_INVALID where its name is `taken`."""
    field = f"sockets.{name}"
    if name in taken:
        raise _wrong(field, "a hand type of that name is installed", "choose another name")
    if not _NAME.fullmatch(name):
        raise _wrong(field, "no such name is a type's", "use 1 to 64 of a-z, 0-9, '.', '_' and '-'")
    if not path.is_absolute() or len(os.fsencode(path)) > _LONGEST:
        what = f"{str(path)!r} is no absolute path of at most {_LONGEST} bytes"
        raise _wrong(field, what, "name the socket's whole path")
    return SocketType(name, path, daemon=daemon, exactly=exactly)


def _wrong(field: str, what: str, action: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, f"{field}: {what}", action=action)


def registered() -> list[tuple[EntryPoint, str]]:
    """Who registered, ours first; and where its name is another one's, which that is."""
    targets: dict[str, str] = {}
    found = []
    for entry in sorted(entry_points(group="carpal.hand_types"), key=lambda each: not _ours(each)):
        first = targets.setdefault(entry.name, entry.value)
        found.append((entry, "" if first == entry.value else first))
    return found


def made(entry: EntryPoint, sandbox: str) -> HandType:
    """The type that one entry point names. Raises ImportError when its extra is not installed."""
    if not entry.value.startswith("hands.builtin."):
        return PluginType(entry.name, entry.value)
    hand_type: HandType = entry.load()()
    if isinstance(hand_type, Sandboxing):
        hand_type.sandbox = sandbox
    return hand_type


def _ours(entry: EntryPoint) -> bool:
    return entry.value.startswith("hands.")
