"""carpal.chain: what a chained hash covers."""

import struct
from hashlib import sha256
from typing import Any

import pytest

from carpal.chain import data_digest, event_hash, genesis

EVENT: dict[str, Any] = {
    "id": "sevt_1",
    "position": 1,
    "time_ns": 1_700_000_000_123_456_789,
    "type": "user.message",
    "source": "spiffe://carpal.internal/operator/ada",
    "must_understand": False,
    "digest": data_digest(b"{}"),
}


def test_the_hash_is_the_documented_bytes_so_that_anyone_can_recompute_it() -> None:
    fields = [
        b"sevt_1",
        struct.pack(">Q", 1),
        struct.pack(">q", 1_700_000_000_123_456_789),
        b"user.message",
        b"spiffe://carpal.internal/operator/ada",
        b"\0",
        sha256(b"{}").digest(),
    ]
    packed = b"".join(struct.pack(">I", len(field)) + field for field in fields)
    first = sha256(b"carpal/v1/chain\0sesn_1").digest()
    assert genesis("sesn_1") == first
    assert event_hash(first, **EVENT) == sha256(first + packed).digest()


@pytest.mark.parametrize(
    "change",
    [
        {"id": "sevt_2"},
        {"position": 2},
        {"time_ns": 0},
        {"type": "user.interrupt"},
        {"source": "spiffe://carpal.internal/operator/eve"},
        {"must_understand": True},
        {"digest": data_digest(b"[]")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_of_any_field_changes_the_hash(change: dict[str, Any]) -> None:
    start = genesis("sesn_1")
    assert event_hash(start, **EVENT) != event_hash(start, **(EVENT | change))


def test_bytes_that_move_between_fields_change_the_hash() -> None:
    start = genesis("sesn_1")
    left = event_hash(start, **(EVENT | {"id": "ab", "type": "c"}))
    right = event_hash(start, **(EVENT | {"id": "a", "type": "bc"}))
    assert left != right


def test_the_same_event_in_another_session_or_after_another_event_has_another_hash() -> None:
    one = event_hash(genesis("sesn_1"), **EVENT)
    assert one != event_hash(genesis("sesn_2"), **EVENT)
    assert one != event_hash(one, **EVENT)
