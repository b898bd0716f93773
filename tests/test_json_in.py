"""JSON of a peer: an object of bounded size and depth, or a refusal, and never anything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpal.errors import CarpalError
from carpal.json_in import DEPTH_MAX, deeper, read_object
from carpal.status import Reason


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"7",
        b"[]",
        b"\xff\xfe",
        b"{",
        b"[" * 50_000 + b"]" * 50_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1),
        b'{"a":' + b"9" * 10_000 + b"}",
        b'{"a":"' + b"x" * 1000 + b'"}',
    ],
)
def test_what_is_no_object_within_bounds_is_refused(data: bytes) -> None:
    with pytest.raises(CarpalError) as caught:
        read_object(data, "schema", size=1000 if b"x" in data else 200_000)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert len(str(caught.value)) < 300


def test_as_deep_as_it_may_be_it_is_read() -> None:
    deepest = b'{"a":' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX
    assert read_object(deepest, "data") == json.loads(deepest)


def test_numbers_that_json_does_not_have_are_read_as_their_names() -> None:
    read = read_object('{"a":[NaN,-Infinity,1e999,1.5]}', "data")
    assert read == {"a": ["NaN", "-Infinity", "1e999", 1.5]}
    json.dumps(read, allow_nan=False)


@given(
    st.dictionaries(
        st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists), max_size=5
    )
)
def test_an_object_comes_back_as_it_was(value: dict[str, object]) -> None:
    assert read_object(json.dumps(value), "data") == value


def test_depth_counts_objects_and_lists_within_each_other() -> None:
    assert not deeper({"a": [{}]}, 3)
    assert deeper({"a": [{}]}, 2)
