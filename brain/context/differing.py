"""A request as what differs from one before it: a turn then grows in the log as it is said. Pure.

A request that no policy makes again is kept whole. Of the next one, which says
all of the first once more, only the messages after what both begin with are
kept, and the parameters that are others.
"""

from typing import Any

Json = dict[str, Any]


def differing(request: Json, before: Json) -> tuple[Json, int] | None:
    """What differs, and how many messages both begin with; None when it is to be kept whole."""
    if not before.keys() <= request.keys():
        return None
    shared = 0
    for one, other in zip(request["messages"], before["messages"], strict=False):
        if one != other:
            break
        shared += 1
    if not shared:
        return None
    others = {key: value for key, value in request.items() if before.get(key, _NOT) != value}
    return {**others, "messages": request["messages"][shared:]}, shared


def put_together(differs: Json, before: Json, shared: int) -> Json:
    """The request of what differs from one before it."""
    messages = [*before["messages"][:shared], *differs["messages"]]
    return {**before, **differs, "messages": messages}


_NOT = object()
