"""What is remembered of a daemon's links that are over, and of its hellos that were refused.

Past links travel in the attributes of the daemon's lease, so any brain tells them after
any other died, and nothing is asked of a store for it. Refused hellos are of this brain
alone, while it lives.
"""

import json
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from carpal.errors import CarpalError
from carpal.v1 import orchestrator_pb2 as pb

LINKS_MAX = 8
"""Links, and hellos, that are told of."""
GOODBYE, CUT, UNSEEN = "goodbye", "cut", "unseen"
"""How a link ended that no refusal ended: its daemon said so, its stream ended, or nobody saw."""
_NAMES_MAX = 1024
"""Daemons whose refused hellos are remembered."""
_BYTES_MAX = 3_500
"""Of all that a lease says of a daemon: the store takes 4,096, and the link's end adds some."""

Attributes = dict[str, str]


class Past(NamedTuple):
    """A link that is over; times are seconds since the epoch, 0 when nobody knows."""

    brain: str
    began: int
    ended: int
    why: str


def ended(attributes: Mapping[str, str], now: int, why: str) -> Past:
    """The link that a lease's attributes tell of, once it is over.

    At `now`, in seconds since the epoch, for `why`, unless they say it themselves.
    """
    began = _number(attributes.get("since"))
    at = _number(attributes.get("ended")) or now
    return Past(attributes.get("brain", ""), began, at, attributes.get("why") or why)


def history(attributes: Mapping[str, str]) -> list[Past]:
    """The links before it, the newest first; none of what cannot be read."""
    try:
        return [
            Past(str(brain), int(began), int(ended), str(why))
            for brain, began, ended, why in json.loads(attributes.get("links") or "[]")
        ][:LINKS_MAX]
    except (TypeError, ValueError):
        return []


def with_history(attributes: Attributes, links: Iterable[Past]) -> Attributes:
    """The attributes of a new link, with as many of those before it as there is room for."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in attributes.items())
    kept = list(links)[:LINKS_MAX]
    while kept and size + len(_text(kept)) > _BYTES_MAX:
        kept.pop()
    return {**attributes, "links": _text(kept)} if kept else attributes


def told(links: Iterable[Past]) -> list[pb.PastLink]:
    """Them as messages."""
    rows = []
    for link in links:
        row = pb.PastLink(brain=link.brain, why=link.why)
        row.began.FromSeconds(link.began)
        if link.ended:
            row.ended.FromSeconds(link.ended)
        rows.append(row)
    return rows


class Refused:
    """Hellos that this brain refused lately."""

    def __init__(self, brain: str) -> None:
        self._brain = brain
        self._rows: OrderedDict[tuple[str, str], deque[pb.RefusedHello]] = OrderedDict()

    def add(self, workspace: str, name: str, error: CarpalError) -> None:
        """One was."""
        row = pb.RefusedHello(brain=self._brain, reason=error.reason, message=error.message[:500])
        row.time.GetCurrentTime()
        rows = self._rows.setdefault((workspace, name), deque(maxlen=LINKS_MAX))
        self._rows.move_to_end((workspace, name))
        rows.appendleft(row)
        if len(self._rows) > _NAMES_MAX:
            self._rows.popitem(last=False)

    def of(self, workspace: str, name: str) -> list[pb.RefusedHello]:
        """A daemon's, the newest first."""
        return list(self._rows.get((workspace, name), ()))


def _text(links: list[Past]) -> str:
    return json.dumps(links, separators=(",", ":"))


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 16 else 0
