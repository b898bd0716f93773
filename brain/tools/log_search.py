"""A search through a log, one event at a time, the newest first. Pure."""

from brain.session.entries import Entry
from brain.session.transcript import Transcript
from brain.tools.offered import meant
from brain.tools.own import Search
from brain.tools.readable import heading, text_of
from carpal.agent import OWN_HAND

EVENTS_MAX = 20_000
CHARACTERS_MAX = 32 * 1024 * 1024
"""What one search looks at, at most."""
_OF_CALLS = ("agent.tool_use", "agent.tool_result", "hand.late_result")
_AROUND = 100
"""Characters of an excerpt on each side of what was found."""


class LogSearch:
    """What was found so far."""

    def __init__(self, asked: Search, transcript: Transcript) -> None:
        self.hits: dict[int, str] = {}
        """A line for each event that fits, by its position."""
        self.types = _OF_CALLS if asked.tool else (asked.type,) if asked.type else ()
        """Types of events to look at; all when empty."""
        self._asked = asked
        self._words = asked.words.lower().split()
        self._tool = meant(transcript, asked.tool) if asked.tool else None
        self._waiting: dict[str, dict[int, str]] = {}
        """Results that fit but for the tool, which is known once its call comes."""
        self._events = self._characters = 0

    def look(self, entry: Entry) -> None:
        """Look at the next event."""
        text = text_of(entry)
        self._events += 1
        self._characters += len(text)
        if self._asked.type and not fits(entry.type, self._asked.type):
            line = ""
        else:
            line = excerpt(text, self._words)
        hit = {entry.position: f"{heading(entry)}: {line}"} if line else {}
        if self._tool is None:
            # What was searched for before says the words too.
            if not _is_own(entry):
                self.hits |= hit
        elif entry.type != "agent.tool_use":
            self._waiting.setdefault(str(entry.data.get("tool_use_id")), {}).update(hit)
        elif (entry.data.get("hand", ""), entry.data.get("name")) == self._tool:
            self.hits |= hit | self._waiting.pop(entry.id, {})

    def over(self) -> bool:
        """Whether enough was found, or looked at."""
        enough = len(self.hits) >= self._asked.limit
        return enough or self._events >= EVENTS_MAX or self._characters >= CHARACTERS_MAX


def fits(kind: str, wanted: str) -> bool:
    """Whether a type is the one wanted, or of the family: `agent.*`."""
    return kind.startswith(wanted[:-1]) if wanted.endswith(".*") else kind == wanted


def _is_own(entry: Entry) -> bool:
    return bool(entry.data.get("hand") == OWN_HAND or entry.data.get("again"))


def excerpt(text: str, words: list[str]) -> str:
    """A line of a text around the first of some words, which must all be in it; empty if not.

    `words` in lower case; without any, the text's beginning.
    """
    lower = text.lower()
    if not all(word in lower for word in words):
        return ""
    at = lower.find(words[0]) if words else 0
    start = max(0, at - _AROUND)
    end = max(at, 0) + _AROUND
    line = " ".join(text[start:end].split())
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return f"{before}{line}{after}" or "[no text]"
