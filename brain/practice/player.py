"""Which turn answers a request, and whether this attempt at it fails.

The turn follows from the request alone. Only failures count: how often the
same request came is kept per process, so that a retry can succeed.
"""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from brain.practice.answer import Answer, Cut, Failure, Script
from brain.practice.obey import obey
from brain.practice.request import Conversation

_REMEMBERED = 10_000
"""Requests whose attempts are counted; the oldest are forgotten first."""


@dataclass(frozen=True)
class Play:
    """What one request gets."""

    answer: Answer
    source: str
    """`instructions`, or the script's name and the turn's index: `fix[2]`."""
    error: Failure | None = None
    cut: Cut | None = None


class Player:
    """Chooses turns; one per process."""

    def __init__(self, scripts: Sequence[Script] = ()) -> None:
        self._scripts = scripts
        self._attempts: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    def play(self, conversation: Conversation, raw: bytes) -> Play:
        """The answer to this attempt; `raw` is the body, by which retries are known."""
        script = next((s for s in self._scripts if _fits(s, conversation)), None)
        index = None if script is None else turn_index(script, conversation)
        if script is None or index is None:
            return Play(obey(conversation), "instructions")
        answer, source = script.turns[index], f"{script.name}[{index}]"
        if answer.error is None and answer.cut is None:
            return Play(answer, source)
        attempt = self._count((source, hashlib.sha256(raw).digest()))
        failures = _times(answer.error)
        if attempt < failures:
            return Play(answer, source, error=answer.error)
        if attempt < failures + _times(answer.cut):
            return Play(answer, source, cut=answer.cut)
        return Play(answer, source)

    def _count(self, key: tuple[str, bytes]) -> int:
        """How often this request came before."""
        attempt = self._attempts.pop(key, 0)
        self._attempts[key] = attempt + 1
        if len(self._attempts) > _REMEMBERED:
            self._attempts.popitem(last=False)
        return attempt


def _times(fault: Failure | Cut | None) -> float:
    """How many attempts meet a fault."""
    if fault is None:
        return 0
    return math.inf if fault.times == "always" else fault.times


def _fits(script: Script, conversation: Conversation) -> bool:
    return (
        script.match is None
        or script.match in conversation.system
        or script.match in conversation.turns[0].text()
    )


def turn_index(script: Script, conversation: Conversation) -> int | None:
    """The turn of `script` that comes next; None past its end.

    Turns with `when` that the last user text holds go first, counted from
    that text; turns without `when` are counted from the conversation's start.
    """
    said = conversation.last_user_text
    when = next((t.when for t in script.turns if t.when is not None and t.when in said), None)
    since = conversation.assistant_turns if when is None else _turns_since_asked(conversation)
    matching = [index for index, turn in enumerate(script.turns) if turn.when == when]
    return matching[since] if since < len(matching) else None


def _turns_since_asked(conversation: Conversation) -> int:
    later = conversation.turns[conversation.asked + 1 :]
    return sum(turn.role == "assistant" for turn in later)
