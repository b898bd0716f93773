"""carpal.export: a file comes back as it was written, and says at which line it is not one."""

import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpal.errors import CarpalError
from carpal.export import BlobPart, End, Entry, blobs_named, line_of, read
from carpal.status import Reason
from carpal.v1 import types_pb2
from tests.logs import head, log, redact

BLOB = bytes(range(256)) * 3
INFO = types_pb2.SessionInfo(
    session_id="sesn_1",
    workspace="default",
    title="naïve",
    metadata={"team": "a"},
    labels={"stage": "test"},
    chain_id="sesn_0",
    imported_to=2,
    wake=2,
)


def parts(blob: bytes = BLOB, size: int = 500) -> list[BlobPart]:
    digest = sha256(blob).digest()
    return [
        BlobPart(digest, len(blob), "text/plain", at, blob[at : at + size])
        for at in range(0, max(len(blob), 1), size)
    ]


def entries() -> list[Entry]:
    events = log(b'{"a":1}', b"{}", b"odd")
    redact(events[1])
    signed = types_pb2.SignedBytes(payload=b"p", signature=b"s", certificate_chain=b"c")
    return [INFO, *events, *parts(), *parts(b""), End(head(events), 3, 2, signed)]


def lines() -> list[bytes]:
    return [line_of(entry) for entry in entries()]


def problem(changed: list[bytes]) -> str:
    with pytest.raises(CarpalError) as raised:
        list(read(changed, "x.jsonl"))
    assert raised.value.reason is Reason.EXPORT_MALFORMED
    return raised.value.message


def test_a_file_comes_back_as_it_was_written() -> None:
    assert list(read(lines(), "x.jsonl")) == entries()


def test_each_line_is_json_and_says_what_it_is() -> None:
    objects = [json.loads(line) for line in lines()]
    assert objects[0]["carpal_export"] == 1
    assert objects[0]["session"]["session_id"] == "sesn_1"
    assert [line["position"] for line in objects[1:4]] == [1, 2, 3]
    assert set(objects[4]["blob"]) == {"digest", "size", "media_type", "offset", "data"}
    assert set(objects[-1]) == {"head", "events", "blobs", "signed_head"}


def test_who_drives_the_session_is_no_part_of_its_export() -> None:
    info = types_pb2.SessionInfo(session_id="sesn_1")
    info.lease.holder = "spiffe://carpal.internal/brain/b1"
    assert b"spiffe" not in line_of(info)


def test_members_of_the_session_that_a_newer_carpal_adds_are_skipped() -> None:
    first = json.loads(lines()[0])
    first["session"]["mood"] = "good"
    changed = [json.dumps(first).encode(), *lines()[1:]]
    assert next(read(changed, "x.jsonl")) == INFO


@given(st.integers(0, 7))
def test_a_file_cut_short_names_its_last_line(kept: int) -> None:
    cut = lines()[:kept]
    assert problem(cut) == f"x.jsonl is cut short after line {kept}"


@given(st.data())
def test_a_line_cut_short_is_named(data: st.DataObject) -> None:
    whole = lines()
    at = data.draw(st.integers(0, len(whole) - 1))
    length = data.draw(st.integers(0, len(whole[at]) - 2))
    cut = [*whole[:at], whole[at][:length]]
    assert problem(cut) == f"line {at + 1} of x.jsonl is not JSON, or is cut short"


def test_garbage_is_named_by_its_line() -> None:
    whole = lines()
    assert problem([b"garbage\n"]).startswith("line 1 of x.jsonl is not JSON")
    assert problem([b"{}\n"]).startswith("line 1 of x.jsonl does not begin an export")
    assert problem([whole[0], b"[]\n"]) == "line 2 of x.jsonl is not an object"
    assert problem([whole[0], b"{}\n"]) == "line 2 of x.jsonl has no `id`, or a wrong one"
    assert problem([*whole, b"{}\n"]) == "line 9 of x.jsonl follows the end"
    assert problem([whole[0], b"x" * 20_000_000]).endswith("is longer than any line of an export")


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({"carpal_export": 2, "session": {}}, "is of version 2, which a newer carpal wrote"),
        ({"carpal_export": "1"}, "has no `carpal_export`, or a wrong one"),
        ({"carpal_export": 1}, "has no `session`, or a wrong one"),
        ({"carpal_export": 1, "session": {}}, "has a session without an id"),
        ({"carpal_export": 1, "session": {"head": 1}}, "does not describe a session"),
    ],
)
def test_a_first_line_that_begins_nothing_is_refused(first: dict[str, object], said: str) -> None:
    assert problem([json.dumps(first).encode()]) == f"line 1 of x.jsonl {said}"


def test_an_event_dropped_or_repeated_makes_the_last_line_wrong() -> None:
    whole = lines()
    assert problem(whole[:2] + whole[3:]).endswith("says that there are 3 events: there are 2")
    assert problem(whole[:2] + whole[1:]).endswith("says that there are 3 events: there are 4")


def test_a_blob_that_is_not_whole_or_not_itself_is_refused() -> None:
    whole = lines()
    assert problem(whole[:5] + whole[6:]).endswith("is not the next part of its blob")
    assert problem(whole[:4] + whole[5:]).endswith("is not the next part of its blob")
    assert problem(whole[:5] + whole[7:]).endswith("comes before a blob is whole")
    wrong = json.loads(whole[5])
    wrong["blob"]["data"] = wrong["blob"]["data"][::-1].replace("=", "A")
    changed = [*whole[:5], json.dumps(wrong).encode(), *whole[6:]]
    assert "line 6 of x.jsonl" in problem(changed)


def test_a_blob_left_out_makes_the_last_line_wrong() -> None:
    whole = lines()
    assert problem(whole[:6] + whole[7:]).endswith("says that there are 2 blobs: there are 1")


def test_an_event_after_a_blob_is_refused() -> None:
    whole = lines()
    assert problem([*whole[:6], whole[1]]).endswith("is an event among blobs")


def test_blobs_are_named_by_their_digest_anywhere_in_an_events_data() -> None:
    name = "ab" * 32
    data = f'{{"a":["sha256:{name}"],"b":"see sha256:{"0" * 64}, sha256:{name}0"}}'.encode()
    assert blobs_named(data) == [bytes.fromhex(name), bytes(32)]
    assert blobs_named(b"") == []
