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
    targets: dict[str, str] = {}
    for entry in sorted(entry_points(group="carpal.hand_types"), key=lambda each: not _ours(each)):
        if targets.setdefault(entry.name, entry.value) != entry.value:
            about = {"type": entry.name, "taken_by": targets[entry.name], "left_out": entry.value}
            log.warning("two hand types have one name", extra=about)
        elif _ours(entry):
            try:
                found[entry.name] = hand_type = entry.load()()
                if isinstance(hand_type, Sandboxing):
                    hand_type.sandbox = sandbox
            except ImportError as error:
                log.warning("hand type left out", extra={"type": entry.name, "why": str(error)})
        else:
            found[entry.name] = PluginType(entry.name, entry.value)
    return found


def _ours(entry: EntryPoint) -> bool:
    return entry.value.startswith("hands.builtin.")
