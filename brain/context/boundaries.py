"""Where a window may be cut: never inside a tool batch, nor inside a reply. Pure.

A cut at a position says that a text stands for the log up to there, and that
what comes after is read as it is. So every call up to there must have its
result up to there too, and every reply be wholly on one side.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from brain.context.conversation import Piece
from brain.session.entries import ModelRequest
from brain.session.transcript import Transcript


@dataclass(frozen=True)
class Boundary:
    """A place for a cut."""

    through: int
    tail: int
    """Tokens of what stays after it."""


class Sizes:
    """How many tokens stand between two positions."""

    def __init__(self, pieces: list[Piece]) -> None:
        ordered = sorted((piece.position, piece.tokens) for piece in pieces)
        self._positions = [position for position, _ in ordered]
        self._sums = [0, *accumulate(tokens for _, tokens in ordered)]

    def between(self, after: int, upto: int) -> int:
        """Of what stands above `after`, up to `upto` and with it."""
        first, last = (bisect_right(self._positions, each) for each in (after, upto))
        return max(0, self._sums[last] - self._sums[first])


def boundaries(transcript: Transcript, pieces: list[Piece]) -> list[Boundary]:
    """The places for a cut, from the earliest on; the last is the transcript's head.

    `pieces` are all of the window's. There is none at the head while a call is open.
    """
    sizes = Sizes(pieces)
    places = sorted(set(_places(transcript)))
    return [Boundary(place, sizes.between(place, transcript.head)) for place in places]


def pick(found: list[Boundary], keep: int, at_most: int) -> Boundary | None:
    """The earliest that leaves no more than `keep`, and something, if anything does by `at_most`.

    At the head all is cut, the question that was asked last too: it is better to keep more.
    """
    if not found:
        return None
    chosen = next((each for each in found if each.tail <= keep), None)
    if chosen is not None and chosen.tail:
        return chosen
    larger = [each for each in found if 0 < each.tail <= at_most]
    return larger[-1] if larger else chosen


def replies(transcript: Transcript) -> list[ModelRequest]:
    """The replies that are in the window, in order."""
    cut = transcript.window.through if transcript.window is not None else 0
    return [
        request
        for request in transcript.requests.values()
        if request.position > cut and request.done and not request.failed and request.blocks
    ]


def _places(transcript: Transcript) -> Iterator[int]:
    cut = transcript.window.through if transcript.window is not None else 0
    made = replies(transcript)
    yield from (reply.through for reply in made if reply.through > cut)
    yield from (reply.ended for reply in made if _ends_a_turn(reply, transcript))
    if not transcript.open_calls() and transcript.head > cut:
        yield transcript.head


def _ends_a_turn(reply: ModelRequest, transcript: Transcript) -> bool:
    """Whether nothing is to follow it, and nothing came while it was written."""
    if any(entry.type == "agent.tool_use" for entry in reply.blocks):
        return False
    inputs = transcript.inputs
    next_one = bisect_right(inputs, reply.through, key=lambda entry: entry.position)
    return next_one == len(inputs) or inputs[next_one].position > reply.ended
