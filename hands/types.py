"""The hand types this machine has: whoever registered under `carpal.hand_types`."""

import logging
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, Protocol, get_args, runtime_checkable

from carpal.errors import invalid
from hands.builtin.plugin import PluginType
from hands.contract import HandType

log = logging.getLogger(__name__)

Sandbox = Literal["auto", "off", "required"]
"""Whether hands get a sandbox: where one can be made, never, or else no hand."""


@runtime_checkable
class Sandboxing(Protocol):
    """A type whose hands may get a sandbox."""

    sandbox: str
    """`auto`, `off` or `required`."""


def installed(sandbox: str = "auto") -> dict[str, HandType]:
    """By name. One whose extra is not installed is left out, and the log says so.

    Nothing is imported but our own: what others wrote runs in no daemon. A name that is taken
    stays who had it: ours first, then the first that Python finds.
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
    return found


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
    if not _ours(entry):
        return PluginType(entry.name, entry.value)
    hand_type: HandType = entry.load()()
    if isinstance(hand_type, Sandboxing):
        hand_type.sandbox = sandbox
    return hand_type


def _ours(entry: EntryPoint) -> bool:
    return entry.value.startswith("hands.builtin.")
