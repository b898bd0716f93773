"""What else of a log may hold what one event says: summaries, the answers they are of, requests.

A cut of the context window has a text and a checkpoint that stand for the log
up to a position; each was made from the one before. A request that no policy
makes again is kept whole, as a blob, which nothing erases.
"""

from dataclasses import dataclass, field

from carpal.operator.asking import events_of
from carpal.operator.connection import Operator
from carpal.operator.events import data_of
from carpal.v1 import types_pb2

CUT = "agent.thread_context_compacted"
_ASKED, _ANSWERED = "span.model_request_start", "span.model_request_end"
_TYPES = (CUT, _ASKED, _ANSWERED)


@dataclass
class Derived:
    """What of a log after an event was made of what it says."""

    cuts: list[int] = field(default_factory=list)
    """Positions of cuts that stand for the event too, and are not redacted yet."""
    answers: list[int] = field(default_factory=list)
    """Positions of what the model said when it was asked for their text; not redacted yet."""
    blobs: dict[str, int] = field(default_factory=dict)
    """Requests that are kept whole, and the position that names each first."""


async def derived(operator: Operator, session_id: str, event: types_pb2.Event) -> Derived:
    """All that comes after the event, or with it, and may hold what it says.

    `event`: as it was before it was redacted; a cut, or the answer of one, is in the cuts since.
    """
    found = Derived()
    data = data_of(event)
    since = event.position
    if event.type == CUT and isinstance(data.get("through"), int):
        since = data["through"]
    tainted = {str(data["model_request_start_id"])} if "reply" in data else set()
    made = events_of(operator, session_id, *_TYPES, after=min(since, event.position))
    async for each in made:
        if each.position == event.position:
            continue
        _take(found, each, since, tainted)
    return found


def _take(found: Derived, event: types_pb2.Event, since: int, asked: set[str]) -> None:
    """Look at one event; `asked`: the questions for a summary whose answers count."""
    data, redacted = data_of(event), event.HasField("redaction")
    if event.type == CUT:
        made_of = data.get("model_request_start_id") in asked
        if not redacted and (made_of or _reaches(data.get("through"), since)):
            found.cuts.append(event.position)
    elif event.type == _ASKED:
        if data.get("purpose") == "compaction" and _reaches(data.get("covers"), since):
            asked.add(event.id)
        if isinstance(blob := data.get("request_blob"), str):
            found.blobs.setdefault(blob, event.position)
    elif data.get("model_request_start_id") in asked and "reply" in data:
        found.answers.append(event.position)


def _reaches(through: object, since: int) -> bool:
    """Whether what stands for the log up to there stands for a position; so, if nobody can tell."""
    return not isinstance(through, int) or through >= since
