"""A seal key that a key service wraps: a plug-in that wraps 32 bytes and unwraps them again.

A plug-in is an entry point in `carpal.seals`: a callable that takes the seal's settings, a dict,
and returns something with these two methods. They may block, and raise `KmsFailed` with words
for the operator. While the service is down a vault stays sealed.
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol

from carpal.errors import refuse
from carpal.status import Reason

GROUP = "carpal.seals"


class KmsFailed(Exception):
    """The service was not reached, or said no. Its words are shown to the operator."""


class Kms(Protocol):
    """What a plug-in is. `aad` is bound to what is wrapped: unwrapping with another one fails."""

    def wrap(self, plaintext: bytes, aad: bytes) -> tuple[bytes, str]:
        """Wrap; the wrapped bytes, and which key of the service did it."""
        ...

    def unwrap(self, blob: bytes, key_id: str, aad: bytes) -> bytes:
        """The plaintext again."""
        ...


def load(name: str, settings: Mapping[str, Any]) -> Kms:
    """The plug-in of that name; CONFIG_INVALID when there is none, or its settings are wrong."""
    found = {each.name: each for each in entry_points(group=GROUP)}
    if name not in found:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"there is no seal plug-in {name!r}; there are: {', '.join(sorted(found))}",
            action="install the package that brings it",
        )
    try:
        made: Kms = found[name].load()(settings)
    except (ImportError, ValueError, TypeError, KeyError) as error:
        raise refuse(
            Reason.CONFIG_INVALID, f"the seal plug-in {name!r} does not start: {error}"
        ) from None
    return made
