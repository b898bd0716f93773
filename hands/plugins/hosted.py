"""A class of ours that runs in a sandbox: its tools are described by who makes it, not by hints.

The daemon describes and checks them, and imports nothing of it; `hands/plugins/host.py` runs it,
as it runs what others write. So it may be given whatever its type knows of its tools.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from hands.api import Context, HandLost, HandType


class NotBegun(HandLost):
    """The environment was gone before the call: nothing of it happened."""


class Hosted(HandType):
    """One hand."""

    lose: Callable[[str], NoReturn]
    """End the hand at any time, also between calls; says why. Set before `make`."""

    async def make(self, config: Mapping[str, Any], context: Context) -> str:
        """Make it ready; what the model is to know. What it raises is why there is no hand."""
        raise NotImplementedError  # each kind has its own

    async def call(self, name: str, given: Mapping[str, Any], context: Context) -> str | None:
        """Run a tool with an input that fits its schema: as the methods of a plugin."""
        raise NotImplementedError  # each kind has its own
