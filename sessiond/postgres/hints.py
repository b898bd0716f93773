"""What one process tells the others after a commit: which rows to look at. Pure.

A hint is `<who> <token> …` of 8000 bytes at most, which is what NOTIFY carries: `+<session>`
when only its log grew, which matters to those who tail it; `=<session>` when it matters to
all; `@<resource>` for a lease; `*` for anything. It may be lost: who listens also looks
by himself, now and then.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from sessiond.rows import Changes, SessionRow

PAYLOAD_BYTES = 7_900
_HINTS = 50
"""In a row, at most: beyond it `*` is cheaper for all."""


class Wanted(msgspec.Struct):
    """What is to be read."""

    sessions: set[str] = msgspec.field(default_factory=set)
    leases: set[str] = msgspec.field(default_factory=set)
    everything: bool = False

    def add(self, tokens: Iterable[str], tailed: Collection[str]) -> None:
        """Note what a hint says; a log that grew only when somebody here tails it."""
        for token in tokens:
            kind, key = token[:1], token[1:]
            if kind == "=" or (kind == "+" and key in tailed):
                self.sessions.add(key)
            elif kind == "@":
                self.leases.add(key)
            elif kind == "*":
                self.everything = True

    def __bool__(self) -> bool:
        return self.everything or bool(self.sessions) or bool(self.leases)


def tokens(changes: Changes) -> Iterator[str]:
    """What to tell of a commit."""
    leased = {lease.resource for lease in changes.leases}
    for row in changes.sessions:
        yield f"{'=' if row.resource in leased or _moves(row) else '+'}{row.session_id}"
    for resource in leased:
        yield f"@{resource}"


def payloads(who: str, news: Iterable[str]) -> list[str]:
    """The hints that carry these tokens."""
    hints: list[str] = []
    hint, size = [who], len(who)
    for token in news:
        if size + 1 + len(token) > PAYLOAD_BYTES:
            hints.append(" ".join(hint))
            hint, size = [who], len(who)
        hint.append(token)
        size += 1 + len(token)
    hints.append(" ".join(hint))
    return hints if len(hints) <= _HINTS else [f"{who} *"]


def _moves(row: SessionRow) -> bool:
    """Whether those may care who only want to drive it."""
    if row.archived is not None or row.deleted is not None:
        return True
    return not row.driven and (row.wake > row.processed or row.wake_at is not None)
