"""No secret passes however it is cut, and nothing else is changed or kept back."""

import json
from base64 import b64encode
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pace import times
from vault.redact.patterns import spellings
from vault.redact.stream import MARK, Patterns, Redactor
from vault.secret import Secret

TOKEN = "sk-live-Aa1Bb2Cc3Dd4Ee5Ff6"
OTHER = 'Ee5Ff6"quoted"/and+more'
"""Begins as TOKEN ends: the two may share bytes."""
PATTERNS = Patterns([Secret(TOKEN), Secret(OTHER)])
WIRE = [
    TOKEN,
    OTHER,
    json.dumps(OTHER)[1:-1],
    TOKEN.encode().hex(),
    quote(OTHER),
    b64encode(f"user:{TOKEN}".encode()).decode(),
    TOKEN[:-6] + OTHER,
    TOKEN + TOKEN,
    TOKEN[:-1],
    "sk-live-",
]
PIECES = st.lists(
    st.one_of(st.sampled_from([each.encode() for each in WIRE]), st.binary(max_size=12)),
    max_size=12,
)


def through(data: bytes, cuts: list[int], patterns: Patterns = PATTERNS) -> tuple[bytes, bool]:
    passing = Redactor(patterns)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    out = [passing.feed(data[a:b]) for a, b in pairwise(edges)]
    return b"".join([*out, passing.end()]), passing.found


def slowly(data: bytes) -> bytes:
    """What should come out, worked out the plain way: each byte of each secret is marked."""
    starts: list[tuple[int, int]] = []
    for pattern in PATTERNS.all:
        at = data.find(pattern)
        while at >= 0:
            starts.append((at, at + len(pattern)))
            at = data.find(pattern, at + 1)
    begun = [
        size
        for pattern in PATTERNS.all
        for size in range(8, min(len(pattern), len(data) + 1))
        if data.endswith(pattern[:size])
    ]
    if begun:
        starts.append((len(data) - max(begun), len(data)))
    out, at, last = [], 0, -1
    for begin, end in sorted(starts):
        if begin >= last:
            out += [data[at:begin], MARK]
        at = last = max(at, end)
    return b"".join([*out, data[at:]])


@settings(max_examples=times(600, 10_000), deadline=None)
@given(PIECES, st.lists(st.integers(0, 400), max_size=12))
def test_what_comes_out_is_the_same_however_it_is_cut_v28(
    pieces: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(pieces)
    out, found = through(data, cuts)
    assert out == slowly(data)
    assert found == (out != data)
    assert not [each for each in PATTERNS.all if each in out.replace(MARK, b"\0")]


@settings(max_examples=times(300, 5_000), deadline=None)
@given(st.binary(max_size=3000), st.lists(st.integers(0, 3000), max_size=20))
def test_data_without_a_secret_comes_out_byte_for_byte(data: bytes, cuts: list[int]) -> None:
    out, found = through(data, cuts)
    if not any(each[:8] in data for each in PATTERNS.all):
        assert (out, found) == (data, False)


@settings(max_examples=times(300, 5_000), deadline=None)
@given(PIECES, st.lists(st.integers(0, 400), max_size=12))
def test_nothing_is_kept_back_but_what_may_be_a_secrets_beginning(
    pieces: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(pieces)
    passing = Redactor(PATTERNS)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in pairwise(edges):
        passing.feed(data[begin:end])
        held = passing.held
        assert data[:end].endswith(held)
        assert not held or any(
            len(held) < len(each) and each.startswith(held) for each in PATTERNS.all
        )


@pytest.mark.parametrize("spelled", WIRE[:8])
def test_a_secret_is_found_byte_by_byte_and_in_a_large_block(spelled: str) -> None:
    data = b"x" * 100_003 + spelled.encode() + b"y" * 100_001
    whole, found = through(data, [])
    assert found
    assert TOKEN.encode() not in whole
    passing = Redactor(PATTERNS)
    single = b"".join(passing.feed(bytes([byte])) for byte in data[99_990:100_100]) + passing.end()
    assert single in whole


def test_the_most_of_a_secret_at_the_end_of_a_reply_is_struck_out() -> None:
    cut = f"bad token {TOKEN[:-1]}".encode()
    assert through(cut, [])[0] == b"bad token " + MARK


def test_without_secrets_the_very_same_bytes_pass() -> None:
    data = b"anything"
    assert Redactor(Patterns([])).feed(data) is data


def test_a_text_is_cleaned_whole() -> None:
    assert PATTERNS.text(f"é {TOKEN} \ud800") == ("é [REDACTED] ?", True)
    assert PATTERNS.text("é") == ("é", False)


def test_patterns_and_redactors_show_nothing() -> None:
    assert TOKEN not in repr(PATTERNS) + repr(Redactor(PATTERNS))
    assert len(PATTERNS.all) == len(spellings([Secret(TOKEN), Secret(OTHER)]))
