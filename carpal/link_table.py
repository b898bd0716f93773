"""The link's states and what moves it between them, as data. Pure.

`RECEIVES` says what may come in which state, `SENDS` what may go. What is not
in a row of `RECEIVES` closes the link; what is not in a row of `SENDS` stays
unsent. docs/link-states.md shows both; a test holds it to them.
"""

from enum import Enum, auto
from typing import Final


class Side(Enum):
    """Which end of the link this is."""

    BRAIN = auto()
    DAEMON = auto()


class State(Enum):
    """Where a link is in its life."""

    GREETING = auto()
    """The brain waits for hello; the daemon, having said it, for welcome."""
    GREETED = auto()
    """The brain got hello and has not said welcome yet. The daemon is never here."""
    OPEN = auto()
    DRAINING = auto()
    """One end goes away soon: no new hands, calls go on."""
    CLOSED = auto()
    """Over: what still comes is not read."""


Row = dict[str, State]
"""Message kind → the state after it."""
Table = dict[tuple[Side, State], Row]

_END: Final = {"goodbye": State.CLOSED}
_FROM_BRAIN: Final = ("request", "abandon", "heartbeat", "brains", "revocations")
_FROM_DAEMON: Final = ("reply", "heartbeat", "capacity")


def _live(kinds: tuple[str, ...], state: State) -> Row:
    """What goes on in an open or draining link: each kind keeps the state, a drain drains."""
    return dict.fromkeys(kinds, state) | {"drain": State.DRAINING} | _END


RECEIVES: Final[Table] = {
    (Side.BRAIN, State.GREETING): {"hello": State.GREETED} | _END,
    (Side.BRAIN, State.GREETED): _END,
    (Side.BRAIN, State.OPEN): _live(_FROM_DAEMON, State.OPEN),
    (Side.BRAIN, State.DRAINING): _live(_FROM_DAEMON, State.DRAINING),
    (Side.DAEMON, State.GREETING): {"welcome": State.OPEN} | _END,
    (Side.DAEMON, State.OPEN): _live(_FROM_BRAIN, State.OPEN),
    (Side.DAEMON, State.DRAINING): _live(_FROM_BRAIN, State.DRAINING),
}
"""What may come. What is absent is a violation, which closes the link."""

SENDS: Final[Table] = {
    (Side.BRAIN, State.GREETING): _END,
    (Side.BRAIN, State.GREETED): {"welcome": State.OPEN} | _END,
    (Side.BRAIN, State.OPEN): _live(_FROM_BRAIN, State.OPEN),
    (Side.BRAIN, State.DRAINING): _live(_FROM_BRAIN, State.DRAINING),
    (Side.DAEMON, State.GREETING): {"hello": State.GREETING} | _END,
    (Side.DAEMON, State.OPEN): _live(_FROM_DAEMON, State.OPEN),
    (Side.DAEMON, State.DRAINING): _live(_FROM_DAEMON, State.DRAINING),
}
"""What may go."""

LIVE: Final = frozenset({State.OPEN, State.DRAINING})
"""States in which requests are asked and answered."""

URGENT: Final = frozenset({"hello", "welcome", "heartbeat"})
"""Kinds that go before all that waits; so does a request to cancel."""

MOVES: Final = frozenset({"execute", "tunnel"})
"""Requests whose answer may move to an Attach stream."""

GREETINGS: Final = frozenset({"hello", "welcome"})
"""Kinds that end a wait which nothing else ends: until then, what comes breaks no silence."""
