"""Cuts of the window: when one is due, and where it goes. Pure.

A policy cuts when the next request may be larger than its `at`, or when the
model refused one as too long. What it says then is a `Cut`; how it is made,
and what stands in the log for it, is brain/context/window.py's.
"""

from dataclasses import dataclass
from typing import Any, Literal

from brain.context.boundaries import boundaries, pick
from brain.context.conversation import Piece, conversation
from brain.context.settings import Settings
from brain.session.model_kinds import CONTEXT
from brain.session.transcript import Transcript

Json = dict[str, Any]

TOO_LONG = CONTEXT
"""What the log calls the refusal of a request that is larger than the model's window."""


@dataclass(frozen=True)
class Cut:
    """One that is due."""

    through: int
    kind: Literal["summary", "note", "omitted"]
    """What stands for the log up to there: what the model says when asked, or just that
    something stood there."""
    instructions: str = ""
    """What the model is asked."""


def refused(transcript: Transcript) -> int:
    """How many requests in a row were too long for the model, since the last cut or reply."""
    since = transcript.window.position if transcript.window is not None else 0
    count = 0
    for request in reversed(transcript.requests.values()):
        if request.position <= since or (request.done and not request.failed):
            break
        count += (request.error or {}).get("type") == TOO_LONG
    return count


def due(
    transcript: Transcript, settings: Settings, size: int, keep: int | None = None
) -> int | None:
    """The position of the cut that is due; None when none is, or none would help.

    `size`: tokens of the next request. `keep`: in place of the setting, and no more than that.
    """
    times = refused(transcript)
    if size <= settings.at and not times:
        return None
    pieces = conversation(transcript)
    found = boundaries(transcript, pieces)
    wanted, most = (keep, keep) if keep is not None else (settings.keep, settings.at * 3 // 4)
    chosen = pick(found, wanted >> times, most >> times)
    if chosen is None:
        return None
    gone = _evicted(transcript, pieces, chosen.through)
    if not gone or (not times and gone < min(size, settings.at) // 8):
        return None  # the rest is system, tools and what is asked: no cut makes it smaller
    return chosen.through


def _evicted(transcript: Transcript, pieces: list[Piece], through: int) -> int:
    """Tokens that a cut would take from the window."""
    cut = transcript.window.through if transcript.window is not None else 0
    return sum(piece.tokens for piece in pieces if cut < piece.position <= through)
