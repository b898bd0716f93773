"""The hand types this machine has: whoever registered under `carpal.hand_types`."""

import logging
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from hands.api import HandType

log = logging.getLogger(__name__)


@runtime_checkable
class Sandboxing(Protocol):
    """A type whose hands may get a sandbox."""

    sandbox: str
    """`auto`, `off` or `required`."""


def installed(sandbox: str = "auto") -> dict[str, HandType]:
    """By name. One whose extra is not installed is left out, and the log says so."""
    found: dict[str, HandType] = {}
    for entry in entry_points(group="carpal.hand_types"):
        try:
            found[entry.name] = hand_type = entry.load()()
            if isinstance(hand_type, Sandboxing):
                hand_type.sandbox = sandbox
        except ImportError as error:
            log.warning("hand type left out", extra={"type": entry.name, "why": str(error)})
    return found
