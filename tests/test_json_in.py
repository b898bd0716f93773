"""JSON of a peer: an object of bounded size and depth, or a refusal, and never anything else."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.text import clean
from carpal.errors import CarpalError
from carpal.json_in import DEPTH_MAX, deeper, plain_object, read_object
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


_ODD = ("NaN", "1e999", "-1E400", r'"\ud83d"', r'"\ude00x"', "01", '"\x01"')
_PLAIN = ("0", "-0", "1.50", "9" * 30, "5e-324", "1e-400", r'"\ud83d\ude00"', r'"\u0000é"', "null")


def _odd_or_plain(rng: Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth and kind < 0.6:
        return rng.choice(_ODD if kind < 0.03 else _PLAIN)
    inner = [_odd_or_plain(rng, depth + 1) for _ in range(rng.randint(0, 3 if depth < 4 else 0))]
    if depth and kind < 0.8:
        return f"[{','.join(inner)}]"
    return "{" + ",".join(f'"{rng.choice("abé")}":{each}' for each in inner) + "}"


def test_what_is_read_the_fast_way_is_what_the_slow_way_reads() -> None:
    rng = Random(7)
    fast = 0
    for _ in range(2_000):
        data = _odd_or_plain(rng).encode()
        read = plain_object(data)
        if read is not None:
            fast += 1
            assert repr(read) == repr(clean(read_object(data, "data"))), data
    assert fast > 1_000


@pytest.mark.parametrize("odd", [each.encode() for each in (*_ODD, "", "[" * 200 + "]" * 200)])
def test_what_is_odd_is_left_to_the_slow_way(odd: bytes) -> None:
    assert plain_object(b'{"a":' + odd + b"}") is None


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"\xef\xbb\xbf{}", '{"a":1}'.encode("utf-16")]
)
def test_what_is_no_plain_object_is_left_to_the_slow_way(data: bytes) -> None:
    assert plain_object(data) is None
