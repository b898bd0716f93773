"""The newest of the conversation, and of the older what fits what was asked last. Pure.

What was asked last is the newest message of a person. Of everything before
the newest turns, the events that say most of the same words are put before
them, as far as `found` tokens reach: ranked by BM25, which makes a word weigh
more the rarer it is. The same log gives the same choice. It changes with a
person's message alone, and while a turn runs the window only grows; when that
turn is too large, the newest are chosen anew.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Any

from brain.context.boundaries import Sizes, boundaries
from brain.context.conversation import Piece, conversation
from brain.context.cuts import Cut, due, refused
from brain.context.settings import Settings
from brain.session.entries import Entry
from brain.session.transcript import Transcript

Json = dict[str, Any]
NAME = "retrieve/3"

_WORD = re.compile(r"\w{2,}")
_K1, _B = 1.2, 0.75
"""BM25's own: how soon a repeated word says no more, and how much a long text counts as such."""
_SHOWN = 4_000
"""Characters of one event that are brought back."""


def pieces(transcript: Transcript, settings: Settings) -> list[Piece]:
    """See Policy."""
    everything = conversation(transcript)
    start = _start(transcript, everything, settings)
    older = [piece for piece in everything if piece.position <= start]
    newest = [piece for piece in everything if piece.position > start]
    if not older:
        return newest
    budget = settings.found >> refused(transcript)
    return [_brought(older, ranked(older, _asked(transcript)), budget), *newest]


def cut(transcript: Transcript, settings: Settings, size: int) -> Cut | None:
    """See Policy. When the newest turn alone is too much, it goes, and nobody is asked."""
    through = due(transcript, settings, size)
    return None if through is None else Cut(through, "omitted")


def ranked(texts: list[Piece], query: str) -> list[int]:
    """Which of the pieces say something of the query, by their index, the best first."""
    words = set(_words(query))
    counts = [Counter(_words(_text(piece.block))) for piece in texts]
    lengths = [count.total() for count in counts]
    average = (sum(lengths) / len(lengths) if lengths else 0.0) or 1.0
    having = {word: sum(word in count for count in counts) for word in words}
    weights = {
        word: math.log(1 + (len(texts) - number + 0.5) / (number + 0.5))
        for word, number in having.items()
        if number
    }
    scores = []
    for index, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        norm = _K1 * (1 - _B + _B * length / average)
        # In one order: a sum of the same numbers in another may not be the same number.
        score = sum(
            weights[word] * count[word] * (_K1 + 1) / (count[word] + norm)
            for word in sorted(weights)
            if count[word]
        )
        if score > 0:
            scores.append((-round(score, 9), -index))
    return [-index for _, index in sorted(scores)]


def _start(transcript: Transcript, everything: list[Piece], settings: Settings) -> int:
    """The position after which all is given: moved by a person's message, or a turn's size."""
    asked = _message(transcript)
    upto = asked.position if asked is not None else transcript.head
    keep = settings.keep >> refused(transcript)
    places = [each.through for each in boundaries(transcript, everything)]
    sizes = Sizes(everything)
    start = _earliest(sizes, places, upto, keep)
    for place in places[bisect_right(places, upto) :]:
        if sizes.between(start, place) > settings.at:
            start = _earliest(sizes, places, place, keep)
    return start


def _earliest(sizes: Sizes, places: list[int], upto: int, keep: int) -> int:
    """The first place from which to `upto` there are no more than `keep` tokens."""
    if sizes.between(0, upto) <= keep:
        return 0
    before = places[: bisect_left(places, upto)]
    fits = bisect_left(before, -keep, key=lambda place: -sizes.between(place, upto))
    return before[min(fits, len(before) - 1)] if before else 0


def _message(transcript: Transcript) -> Entry | None:
    """The newest message of a person."""
    said = (e for e in reversed(transcript.inputs) if e.type == "user.message")
    return next(said, None)


def _asked(transcript: Transcript) -> str:
    entry = _message(transcript)
    return _text(entry.data) if entry is not None else ""


def _brought(older: list[Piece], best: list[int], budget: int) -> Piece:
    """What is brought back, in the order in which it was said."""
    chosen: list[tuple[int, str]] = []
    for index in best:
        piece = older[index]
        shown = " ".join(_text(piece.block).split())
        line = f"[position {piece.position}, {_who(piece)}] {shown[:_SHOWN]}"
        cost = len(line.encode("utf-8", "replace")) * 2 // 7 + 1
        if cost <= budget:
            budget -= cost
            chosen.append((index, line))
    left = f"[Of the conversation up to position {older[-1].position}, what follows was found for"
    head = f"{left} what was asked last; the rest is in the session's log.]"
    text = "\n".join([head, *(line for _, line in sorted(chosen))])
    return Piece("user", older[-1].position, {"type": "text", "text": text})


def _who(piece: Piece) -> str:
    kinds = {"tool_use": "call", "tool_result": "result", "text": "said"}
    kind = kinds.get(piece.block["type"], piece.block["type"])
    return f"{piece.role} {kind}"


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _text(value: Any) -> str:
    """Everything that is said in a block."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        skip = ("type", "id", "tool_use_id", "signature", "cache_control", "source")
        return " ".join(_text(each) for key, each in value.items() if key not in skip)
    return " ".join(_text(each) for each in value) if isinstance(value, list) else ""
