"""What the owner's patterns strike out of output, and what they cannot be made to do."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hands.owner.redact import MARK, Redactor, Stream
from hands.owner.redact_pattern import Pattern, parse
from tests.pace import AT_ONCE

KEY = r"AKIA[A-Z0-9]{16}"
SECRET = b"AKIAABCDEFGHIJKLMNOP"
PATTERNS = [KEY, "hunter2!", r"tok_\w{4,12}", r"\d{8}", "a[ab]{2}b{2,5}"]


def redactor(*texts: str) -> Redactor:
    return Redactor([parse(text) for text in texts])


@pytest.mark.parametrize(
    ("text", "finds", "passes"),
    [
        ("hunter2!", "hunter2!", "hunter2?"),
        (KEY, SECRET.decode(), "AKIAABCDEFGHIJKLMNO"),
        (r"\d{4}-\d{4}", "0123-4567", "0123-456x"),
        (r"key=[^ >\n]{4,8}", "key=a+/=", "key=abc"),
        ("p.ss", "p4ss", "p\nss"),
        (r"a\.\[\\b", r"a.[\b", "ax[\\b"),
        ("größe", "größe", "grosse"),
        (r"x\ty\n", "x\ty\n", "x y\n"),
        ("[-a]{4}", "-a-a", "bbbb"),
    ],
)
def test_a_pattern_strikes_out_what_it_says_and_nothing_else(
    text: str, finds: str, passes: str
) -> None:
    assert redactor(text).text(f"<{finds}>") == f"<{MARK}>"
    assert redactor(text).text(f"<{passes}>") == f"<{passes}>"
    size = len(finds.encode())
    assert redactor(text).masked(f"<{finds}>".encode()) == b"<" + b"*" * size + b">"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abc", "4 bytes at least"),
        ("(a|b)cde", "means nothing here"),
        ("a+bcd", "has no bound"),
        ("a*bcd", "has no bound"),
        ("a{2,3}bcd", "at its end only"),
        ("[a-", "not closed"),
        ("[]abcd", "holds nothing"),
        ("[z-a]bcd", "no range"),
        ("[é]abcd", "more than one byte"),
        ("é{4}", "more than one byte"),
        (r"\bword", "not known"),
        ("word\\", "ends with"),
        ("a{0,9}bcd", "n from 1"),
        ("a{300}", "at most 256 bytes"),
        ("abcd{1,9999}", "may have 4096"),
    ],
)
def test_a_pattern_without_a_bound_or_a_meaning_is_refused_by_what_is_wrong(
    text: str, says: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse(text)


def struck(patterns: list[Pattern], data: bytes) -> bytes:
    """The long way: each byte of each match at each place, of each length."""
    out = bytearray(data)
    for each in patterns:
        for begin in range(len(data)):
            for size in range(len(each.required), each.longest + 1):
                piece = data[begin : begin + size]
                kinds = (*each.required, *([each.required[-1]] * each.more))
                if len(piece) == size and all(b in k for b, k in zip(piece, kinds, strict=False)):
                    out[begin : begin + size] = b"*" * size
    return bytes(out)


TEXT = st.lists(
    st.sampled_from([b"a", b"b", b"ab", b"1", b"AKIA", b"Q7", b"tok_", b"hunter2!", SECRET, b"\n"]),
    max_size=30,
).map(b"".join)


@given(TEXT)
def test_every_byte_of_every_match_is_struck_out_also_where_matches_overlap(data: bytes) -> None:
    assert redactor(*PATTERNS).masked(data) == struck([parse(each) for each in PATTERNS], data)


@given(TEXT, st.data())
def test_a_pattern_split_across_chunks_is_caught(data: bytes, draw: st.DataObject) -> None:
    stream, out, at = Stream(redactor(*PATTERNS)), b"", 0
    while at < len(data):
        size = draw.draw(st.integers(1, len(data) - at))
        out += stream.feed(data[at : at + size])
        at += size
    assert out + stream.end() == redactor(*PATTERNS).masked(data)


@given(TEXT, st.data())
def test_where_bytes_are_missing_what_could_be_half_a_match_is_struck_out(
    data: bytes, draw: st.DataObject
) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    both = redactor(*PATTERNS)
    whole = both.masked(data)
    for masked, true in (
        (both.masked(data[:cut], after=True), whole[:cut]),
        (both.masked(data[cut:], before=True), whole[cut:]),
    ):
        assert all(m == t or m == ord("*") for m, t in zip(masked, true, strict=True))


def test_output_that_cannot_become_a_match_is_not_held_back() -> None:
    stream = Stream(redactor(KEY))
    assert stream.feed(b"Password: ") == b"Password: "
    assert stream.feed(b"x AKI") == b"x "
    assert stream.feed(b"no") == b"AKIno"
    assert stream.feed(b"AK") == b""
    assert stream.end() == b"AK"


def test_a_text_that_left_out_its_middle_keeps_no_half_of_a_match_beside_the_gap() -> None:
    text = "key AKIAABCDEF\n[100 bytes omitted]\nGHIJKLMNOP end"
    assert redactor(KEY).text(text) == f"key {MARK}\n[100 bytes omitted]\n{MARK} end"


@pytest.mark.parametrize("kind", ["a", "ab", "eyJ", "1", "AKI"])
def test_no_output_makes_the_search_take_long(kind: str) -> None:
    hard = redactor("a{64}", "a{63}[ab]", r"eyJ[\w.-]{20,2000}", r"\d{12,16}", KEY, r"\w{4,4000}")
    data = (kind * 262_144)[:262_144].encode()
    began = time.monotonic()
    hard.masked(data)
    hard.open_from(data)
    assert time.monotonic() - began < AT_ONCE


def test_beside_each_of_many_gaps_what_could_be_half_a_match_is_struck_out() -> None:
    text = "a log: [1 bytes omitted] of AKIAABCDEF\n[100 bytes omitted]\nGHIJKLMNOP end"
    assert redactor(KEY).text(text) == (
        f"a log: [1 bytes omitted] of {MARK}\n[100 bytes omitted]\n{MARK} end"
    )
