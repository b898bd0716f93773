"""Answers of the tools that read the log: what a search found, pages of what was read. Pure.

Every answer is bounded, and one that leaves something out says how to go on.
"""

from collections.abc import Iterable, Mapping

from brain.session.entries import Entry
from brain.tools.own import PREFIX, READ, READ_BYTES, SEARCH
from brain.tools.readable import heading, text_of

_CUT_NOTE = 200
"""Bytes left for saying that an event goes on."""


def found(hits: Mapping[int, str], down_to: int, *, more: bool) -> str:
    """What a search found, by position, and down to which one it looked."""
    lines = [hits[position] for position in sorted(hits, reverse=True)]
    end = f"[looked down to event {down_to}"
    if more:
        end += f"; go on with {PREFIX}{SEARCH} before={down_to}"
    return "\n".join([*(lines or ["[nothing found]"]), end + "]"])


def page(entries: list[Entry], anchor: str, at: int, head: int, offset: int = 0) -> str:
    """Events as text, oldest first, as many as fit, those nearest to the anchor first.

    `anchor`: `around`, `after` or `before` the position `at`. `offset`: characters of the one
    event that are passed over.
    """
    if not entries:
        return f"[no events there; the log's head is {head}]"
    room = READ_BYTES
    shown: dict[int, str] = {}
    for entry in _nearest_first(entries, anchor, at):
        whole = f"--- {heading(entry)}\n{text_of(entry)[offset:]}"
        size = len(whole.encode("utf-8", "replace")) + 1
        if size > room and shown:
            break
        shown[entry.position] = whole if size <= room else _cut(whole, entry, offset)
        room -= size
    positions = sorted(shown)
    ends = _go_on(positions[0], positions[-1], head)
    return "\n".join([shown[position] for position in positions] + [ends])


def _nearest_first(entries: list[Entry], anchor: str, at: int) -> Iterable[Entry]:
    if anchor == "after":
        return entries
    if anchor == "before":
        return reversed(entries)
    return sorted(entries, key=lambda entry: (abs(entry.position - at), entry.position))


def _cut(whole: str, entry: Entry, offset: int) -> str:
    """As much of a text as fits in an answer, and where it goes on."""
    kept = whole.encode("utf-8", "replace")[: READ_BYTES - _CUT_NOTE].decode(errors="ignore")
    text = text_of(entry)
    next_offset = offset + len(kept) - (len(heading(entry)) + len("--- \n"))
    return (
        f"{kept}\n[cut: {len(text) - next_offset} characters more; go on with "
        f"{PREFIX}{READ} around={entry.position} count=1 offset={next_offset}]"
    )


def _go_on(first: int, last: int, head: int) -> str:
    """Where a page ends, and how to see what is on both sides."""
    hints = [f"before={first}"] if first > 1 else []
    hints += [f"after={last}"] if last < head else []
    more = f"; go on with {PREFIX}{READ} {' or '.join(hints)}" if hints else ""
    return f"[events {first} to {last} of {head}{more}]"
