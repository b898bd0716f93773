"""The context policies, by name, and what one is. Pure."""

from typing import Any, Protocol

from brain.context import compact, reset, retrieve, trim, whole
from brain.context.conversation import Piece
from brain.context.cuts import Cut
from brain.context.settings import Settings
from brain.session.transcript import Transcript

Json = dict[str, Any]


class Policy(Protocol):
    """What of a session's log the model is given: a file of this folder."""

    NAME: str
    """Name and version. Whatever changes a request gets a new one: it says which code made it.

    What each makes is pinned in tests/brain/context/test_versions.py.
    """

    def pieces(self, transcript: Transcript, settings: Settings) -> list[Piece]:
        """What the model is given, in order; the same for the same transcript, to the byte.

        User and assistant alternate once joined, and every call is followed by its result.
        """

    def cut(self, transcript: Transcript, settings: Settings, size: int) -> Cut | None:
        """The cut of the window that is due before the next reply; None when none is.

        `size`: about how many tokens the request for it takes.
        """


POLICIES: dict[str, Policy] = {
    "whole": whole,
    "trim": trim,
    "compact": compact,
    "reset": reset,
    "retrieve": retrieve,
}
"""Name in an agent → the policy."""


def policy_of(settings: Settings) -> Policy:
    """The one that holds for an agent."""
    return POLICIES[settings.policy]
