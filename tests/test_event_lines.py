"""carpal.event_lines: an event comes back from its line as it was."""

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from carpal.chain import data_digest
from carpal.event_lines import Malformed, dumps, event_object, event_of, loads, time_of, time_text
from carpal.v1 import types_pb2
from tests.logs import log, redact

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
DATA = st.binary(max_size=40) | st.builds(
    lambda value, ascii_only, separators: json.dumps(
        value, ensure_ascii=ascii_only, separators=separators
    ).encode(),
    VALUES,
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]),
)
TIMES = st.builds(
    Timestamp,
    seconds=st.integers(-62_135_596_800, 253_402_300_799),
    nanos=st.integers(0, 999_999_999),
)


@st.composite
def events(draw: st.DrawFn) -> types_pb2.Event:
    data = draw(DATA)
    event = types_pb2.Event(
        id=draw(TEXT),
        position=draw(st.integers(0, 2**64 - 1)),
        time=draw(TIMES),
        type=draw(TEXT),
        source=draw(TEXT),
        must_understand=draw(st.booleans()),
        data=data,
        data_digest=draw(st.just(data_digest(data)) | st.binary(max_size=32)),
        hash=draw(st.binary(max_size=32)),
    )
    if draw(st.booleans()):
        redact(event, draw(TEXT))
        event.data = draw(st.just(b"") | DATA)
    return event


@given(events())
def test_any_event_comes_back_from_its_line(event: types_pb2.Event) -> None:
    line = dumps(event_object(event))
    assert b"\n" not in line
    assert event_of(loads(line)) == event


@given(events())
def test_a_line_may_be_reformatted_on_its_way(event: types_pb2.Event) -> None:
    again = json.dumps(json.loads(dumps(event_object(event))), indent=1).encode()
    assert event_of(loads(again)) == event


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"b":[true,null]}',
        b'{"a": 1, "b": [true, null]}',
        '{"text":"naïve ✓"}'.encode(),
        b'{"text":"na\\u00efve"}',
        b"null",
        b"1.5",
    ],
)
def test_usual_spellings_need_no_second_copy_of_the_data(data: bytes) -> None:
    (event,) = log(data)
    shown = event_object(event)
    assert "data_base64" not in shown
    assert shown["data"] == json.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b'{"a":1,"a":2}',
        b'{\n "a": 1\n}',
        b"1e2",
        b"1e400",
        b"NaN",
        b'"\\ud800"',
        b'"\\u0061"',
        b"9" * 5000,
        b"[" * 100_000,
        b"[" * 900 + b"]" * 900,
        '{"a":1}'.encode("utf-16"),
    ],
)
def test_data_that_no_program_usually_writes_comes_back_too(data: bytes) -> None:
    (event,) = log(data)
    assert event_of(loads(dumps(event_object(event)))) == event


def test_odd_json_is_still_shown_as_the_value_that_it_is() -> None:
    (event,) = log(b'{\n "a": 1e2\n}')
    assert event_object(event)["data"] == {"a": 100.0}


def test_a_redacted_event_has_no_data_and_says_who_when_and_why() -> None:
    (event,) = log(b"{}")
    redact(event)
    shown = event_object(event)
    assert shown["data"] is None
    assert "data_base64" not in shown
    assert shown["redaction"] == {
        "by": "spiffe://carpal.internal/operator/ann",
        "time": "2027-01-15T08:01:40.000000000Z",
        "reason": "a name",
    }


@pytest.mark.parametrize("data", [b"null", b"{}", b"odd"])
def test_data_that_a_redaction_left_is_not_lost_from_view(data: bytes) -> None:
    (event,) = log(data)
    redact(event)
    event.data = data
    assert event_of(loads(dumps(event_object(event)))) == event


def test_a_time_keeps_its_nanoseconds() -> None:
    (event,) = log(b"{}")
    assert event_object(event)["time"] == "2027-01-15T08:00:00.124456789Z"
    assert time_of("2027-01-15T08:00:00.124456789Z") == event.time
    assert time_of("2027-01-15T08:00:00.5Z").nanos == 500_000_000


def test_a_time_no_calendar_has_is_shown_and_not_read() -> None:
    with pytest.raises(Malformed, match="has a time"):
        time_of(time_text(Timestamp(seconds=2**62)))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": 1}, "has no `id`, or a wrong one"),
        ({"position": -1}, "has a `position` that is no position or size"),
        ({"position": True}, "has no `position`, or a wrong one"),
        ({"position": 1 << 64}, "has a `position`"),
        ({"time": "yesterday"}, "has a time 'yesterday'"),
        ({"time": "2027-02-31T00:00:00Z"}, "has a time"),
        ({"time": "2027-01-15T08:00:00+01:00"}, "has a time"),
        ({"type": "\ud800"}, "has a `type` that is not Unicode"),
        ({"must_understand": 0}, "has no `must_understand`, or a wrong one"),
        ({"hash": "xy"}, "has a `hash` that is not hexadecimal"),
        ({"data_base64": "%"}, "has a `data_base64` that is not base64"),
        ({"data_base64": "é"}, "has a `data_base64` that is not base64"),
        ({"redaction": None}, "has no `redaction`, or a wrong one"),
        ({"redaction": {}}, "has no `by`, or a wrong one"),
    ],
)
def test_what_is_no_event_is_refused_by_the_field(change: dict[str, object], problem: str) -> None:
    fields = event_object(log(b"{}")[0]) | change
    with pytest.raises(Malformed) as raised:
        event_of(fields)
    assert str(raised.value).startswith(problem)


def test_an_event_without_data_or_that_is_no_object_is_refused() -> None:
    fields = event_object(log(b"{}")[0])
    del fields["data"]
    with pytest.raises(Malformed, match="has no `data`"):
        event_of(fields)
    with pytest.raises(Malformed, match="has no `id`"):
        event_of([])


@pytest.mark.parametrize("line", [b"", b"{", b"NaN", b"\xff", b"[" * 100_000])
def test_a_line_that_is_not_json_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed, match="is not JSON"):
        loads(line)
