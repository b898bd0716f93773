"""The hand types this machine has: whoever registered under `carpal.hand_types`."""

import logging
from importlib.metadata import entry_points

from hands.api import HandType

log = logging.getLogger(__name__)


def installed() -> dict[str, HandType]:
    """By name. One whose extra is not installed is left out, and the log says so."""
    found: dict[str, HandType] = {}
    for entry in entry_points(group="carpal.hand_types"):
        try:
            found[entry.name] = entry.load()()
        except ImportError as error:
            log.warning("hand type left out", extra={"type": entry.name, "why": str(error)})
    return found
