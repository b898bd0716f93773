"""Slices and pages: every anchor, order and cap."""

import pytest

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from sessiond import wire
from sessiond.rows import NewEvent, Slice
from sessiond.rules import reads, sessions
from sessiond.store import Reader
from tests.sessiond.desk import ADA, BRAIN, EVE, Desk, message, refused

NEWEST = types_pb2.EVENT_ORDER_NEWEST_FIRST
TYPES = ["user.message", "user.interrupt", "agent.message", "hand.event"]


@pytest.fixture
def reader(desk: Desk) -> Reader:
    """A log of 20 events of 100 bytes, of four types in turn."""
    events = (NewEvent(f"e{n}", TYPES[n % 4], bytes(100)) for n in range(1, 21))
    desk.create("sesn_1", *events, who=BRAIN)
    return desk.store.reader()


def positions(found: Slice) -> list[int]:
    assert found.head == 20
    return [event.position for event in found.events]


def get(reader: Reader, **fields: object) -> Slice:
    request = pb.GetEventsRequest(session_id="sesn_1", **fields)  # type: ignore[arg-type]
    return reads.slice_of(reader, ADA, request)


@pytest.mark.parametrize(
    ("fields", "expected", "more"),
    [
        ({}, range(1, 21), False),
        ({"limit": 20}, range(1, 21), False),
        ({"limit": 3}, [1, 2, 3], True),
        ({"order": NEWEST, "limit": 3}, [20, 19, 18], True),
        ({"after": 17}, [18, 19, 20], False),
        ({"after": 17, "order": NEWEST, "limit": 2}, [20, 19], True),
        ({"after": 20}, [], False),
        ({"after": 2**63}, [], False),
        ({"before": 4}, [1, 2, 3], False),
        ({"before": 4, "order": NEWEST, "limit": 2}, [3, 2], True),
        ({"before": 0}, [], False),
        ({"before": 2**64 - 1, "limit": 1}, [1], True),
        ({"around": 10, "limit": 4}, [8, 9, 10, 11], True),
        ({"around": 10, "limit": 5}, [8, 9, 10, 11, 12], True),
        ({"around": 10, "limit": 4, "order": NEWEST}, [11, 10, 9, 8], True),
        ({"around": 10, "limit": 1}, [10], True),
        ({"around": 1, "limit": 4}, [1, 2], True),
        ({"around": 20, "limit": 4}, [18, 19, 20], False),
        ({"around": 2, "limit": 6, "order": NEWEST}, [4, 3, 2, 1], False),
        ({"around": 0, "limit": 2}, [1], True),
        ({"types": ["hand.event"], "limit": 2}, [3, 7], True),
        ({"types": ["user.*"], "before": 6}, [1, 4, 5], False),
        ({"types": ["user.*", "agent.message"], "order": NEWEST, "limit": 3}, [20, 18, 17], True),
        ({"types": ["hand.event", "no.such"], "after": 10}, [11, 15, 19], False),
        ({"types": ["no.such"]}, [], False),
        ({"types": ["use.*"]}, [], False),
        ({"types": ["hand.*"], "around": 10, "limit": 4}, [3, 7, 11, 15], True),
        ({"max_bytes": 250}, [1, 2], True),
        ({"max_bytes": 200}, [1, 2], True),
        ({"max_bytes": 1}, [1], True),
        ({"max_bytes": 2000}, range(1, 21), False),
        ({"around": 10, "max_bytes": 400, "limit": 20}, [8, 9, 10, 11], True),
    ],
)  # fmt: skip
def test_a_slice_is_what_was_asked_for(
    reader: Reader, fields: dict[str, object], expected: list[int], more: bool
) -> None:
    found = get(reader, **fields)
    assert positions(found) == list(expected)
    assert found.more is more


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 1001},
        {"types": ["user*"]},
        {"types": ["*"]},
        {"types": [""]},
        {"types": [f"t{n}" for n in range(101)]},
    ],
)
def test_a_malformed_question_is_refused(reader: Reader, fields: dict[str, object]) -> None:
    with refused(Reason.INVALID_FIELD):
        get(reader, **fields)


def test_another_workspaces_log_is_not_found(reader: Reader) -> None:
    request = pb.GetEventsRequest(session_id="sesn_1")
    with refused(Reason.SESSION_NOT_FOUND):
        reads.slice_of(reader, EVE, request)
    assert positions(reads.slice_of(reader, BRAIN, request))


def test_an_event_over_the_cap_is_read_alone(desk: Desk) -> None:
    desk.create("sesn_1", message("a", bytes(1_000_000)), message("b", bytes(1_000_000)))
    for fields in ({"max_bytes": 5}, {"around": 2, "max_bytes": 5, "limit": 1}):
        found = get(desk.store.reader(), **fields)
        assert len(found.events) == 1
        assert found.more is ("around" not in fields)


def test_pages_go_through_a_workspaces_sessions_newest_first_and_only_those(desk: Desk) -> None:
    for number in range(7):
        desk.create(f"s{number}", who=BRAIN, workspace="w")
        desk.create(f"x{number}", who=BRAIN, workspace="other")
    reader = desk.store.reader()
    seen, token = [], ""
    while True:
        request = pb.ListSessionsRequest(limit=3, page_token=token)
        rows, token = reads.page_of(reader, "w", request)
        seen += [session.session_id for session, _ in rows]
        if not token:
            break
    assert seen == [f"s{number}" for number in reversed(range(7))]


def test_a_page_of_large_sessions_fits_in_a_message(desk: Desk) -> None:
    large = {"k" * 90 + str(number): "v" * 100 for number in range(20)}
    for number in range(700):
        new = sessions.NewSession(
            f"s{number}", "default", "t" * 1000, large, large, (), False, b"request"
        )
        desk.run(lambda tx, new=new: sessions.create(tx, ADA, new))  # type: ignore[misc]
    reader = desk.store.reader()
    seen, token = 0, ""
    while token or not seen:
        request = pb.ListSessionsRequest(limit=1000, page_token=token)
        rows, token = reads.page_of(reader, "default", request)
        infos = [wire.session_info(session, lease, steady=0) for session, lease in rows]
        assert pb.ListSessionsResponse(sessions=infos).ByteSize() < 4 * 1024 * 1024
        seen += len(rows)
    assert seen == 700


def test_a_page_token_is_good_for_its_own_query_alone(desk: Desk) -> None:
    for number in range(3):
        desk.create(f"s{number}")
    reader = desk.store.reader()
    _, token = reads.page_of(reader, "default", pb.ListSessionsRequest(limit=1))
    for workspace, request in [
        ("other", pb.ListSessionsRequest(page_token=token)),
        ("default", pb.ListSessionsRequest(page_token=token, include_archived=True)),
        ("default", pb.ListSessionsRequest(page_token="x" + token)),
        ("default", pb.ListSessionsRequest(page_token="é")),
    ]:
        with refused(Reason.INVALID_FIELD):
            reads.page_of(reader, workspace, request)


def test_a_prefix_of_more_types_than_a_statement_should_name_finds_them_all(desk: Desk) -> None:
    events = [NewEvent(f"e{n}", f"hand.t{n}", b"") for n in range(1, 131)]
    other = [NewEvent("f1", "handy.x", b""), NewEvent("f2", "agent.message", b"")]
    desk.create("sesn_1", *events, *other, who=BRAIN)
    store = desk.store.reader()
    types = ["hand.*", "agent.message", "none.*"]
    found = get(store, limit=200, types=types)
    assert [event.position for event in found.events] == [*range(1, 131), 132]
    found = get(store, limit=3, types=types, order=NEWEST)
    assert [event.position for event in found.events] == [132, 130, 129]
    assert found.more
