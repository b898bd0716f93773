"""Slices and pages: what a request to read means, asked of a reader."""

import base64
import binascii
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from carpal.errors import invalid
from carpal.identity import Identity
from carpal.ids import check_id
from carpal.v1 import session_pb2, types_pb2
from sessiond import wire
from sessiond.rows import LeaseRow, SessionRow, Slice, SliceQuery
from sessiond.rules.append import may_see, not_found
from sessiond.store import Reader

DEFAULT_BYTES = 2 * 1024 * 1024
MAX_BYTES = 3 * 1024 * 1024
"""Of data in one answer, so that with one more event of 1 MiB it fits in a message of 4 MiB."""
MAX_TYPES = 100
_FIRST_PAGE = 2**63 - 1


def find(reader: Reader, caller: Identity, session_id: str) -> tuple[SessionRow, LeaseRow | None]:
    """The session and its lease, or SESSION_NOT_FOUND."""
    found = reader.session(check_id(session_id, "session_id"))
    if found is None or not may_see(caller, found[0].workspace):
        raise not_found(session_id)
    return found


def slice_of(reader: Reader, caller: Identity, request: session_pb2.GetEventsRequest) -> Slice:
    """The slice a request asks for."""
    query = SliceQuery(
        newest_first=request.order == types_pb2.EVENT_ORDER_NEWEST_FIRST,
        types=check_types(request.types),
        limit=wire.limit(request.limit),
        max_bytes=min(request.max_bytes or DEFAULT_BYTES, MAX_BYTES),
    )
    anchor = request.WhichOneof("anchor")
    if anchor == "after":
        query = msgspec.structs.replace(query, low=_position(request.after))
    elif anchor == "before":
        query = msgspec.structs.replace(query, high=_position(request.before))
    elif anchor == "around":
        with reader.snapshot():
            session, _ = find(reader, caller, request.session_id)
            return _around(reader, session, query, _position(request.around))
    with reader.snapshot():
        session, _ = find(reader, caller, request.session_id)
        return reader.slice(session, query)


def check_types(types: Sequence[str]) -> tuple[str, ...]:
    """Exact types or prefixes that end in `.*`; INVALID_FIELD when one is neither."""
    if len(types) > MAX_TYPES:
        raise invalid("types", f"at most {MAX_TYPES} may be named")
    for type in types:
        if not type or "*" in type.removesuffix(".*"):
            raise invalid("types", f"{type[:128]!r} must be a type, or a prefix like `user.*`")
    return tuple(types)


def page_of(
    reader: Reader, workspace: str, request: session_pb2.ListSessionsRequest
) -> tuple[list[tuple[SessionRow, LeaseRow | None]], str]:
    """A page of a workspace's sessions, and the token of the next or an empty one.

    It is shorter than asked for when those sessions would not fit in a message.
    """
    limit = wire.limit(request.limit)
    before = _cursor(workspace, request)
    rows = reader.page(
        workspace,
        before=before,
        limit=limit + 1,
        archived=request.include_archived,
        labels=request.labels,
    )
    page = rows[: _fitting(rows[:limit])]
    more = len(rows) > len(page)
    return page, _token(workspace, request, page[-1][0].number) if more else ""


def _fitting(rows: Sequence[tuple[SessionRow, LeaseRow | None]]) -> int:
    """How many of the rows fit in one answer, by their packed size, which is close to the sent."""
    size = 0
    for count, row in enumerate(rows):
        size += len(msgspec.msgpack.encode(row))
        if count and size > DEFAULT_BYTES:
            return count
    return len(rows)


def _around(reader: Reader, session: SessionRow, query: SliceQuery, position: int) -> Slice:
    """Half on each side; the anchor's side is read first, so that the anchor always fits."""
    half = query.limit // 2
    above = reader.slice(
        session,
        msgspec.structs.replace(
            query,
            low=position - 1,
            limit=query.limit - half,
            newest_first=False,
            max_bytes=query.max_bytes // 2,
        ),
    )
    if half == 0:
        return above
    used = sum(len(event.data) for event in above.events)
    below = reader.slice(
        session,
        msgspec.structs.replace(
            query,
            high=position,
            limit=half,
            newest_first=True,
            max_bytes=max(0, query.max_bytes - used),
        ),
    )
    events = [*reversed(below.events), *above.events]
    if query.newest_first:
        return Slice(events[::-1], above.head, below.more)
    return Slice(events, above.head, above.more)


def _position(value: int) -> int:
    """A position that fits the store's integers; beyond them lies nothing either way."""
    return min(value, 2**62)


def _digest(workspace: str, request: session_pb2.ListSessionsRequest) -> bytes:
    query = [workspace, request.include_archived, sorted(request.labels.items())]
    return sha256(msgspec.json.encode(query)).digest()[:8]


def _token(workspace: str, request: session_pb2.ListSessionsRequest, number: int) -> str:
    raw = _digest(workspace, request) + number.to_bytes(8, "big")
    return base64.urlsafe_b64encode(raw).decode()


def _cursor(workspace: str, request: session_pb2.ListSessionsRequest) -> int:
    if not request.page_token:
        return _FIRST_PAGE
    try:
        raw = base64.b64decode(request.page_token, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16 or raw[:8] != _digest(workspace, request):
        raise invalid("page_token", "is not of this query; start from the first page")
    return min(int.from_bytes(raw[8:], "big"), _FIRST_PAGE)
