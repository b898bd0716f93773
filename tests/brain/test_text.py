"""Text that cannot be sent is made fit; text that is too long says what it lacks."""

import json

from hypothesis import given
from hypothesis import strategies as st

from brain.text import clean, json_bytes, shorten


def test_half_characters_become_the_replacement_character() -> None:
    value = json.loads(r'{"\ud83d": ["ok \ude00", 1, null]}')
    assert clean(value) == {"\ufffd": ["ok \ufffd", 1, None]}


def test_whole_characters_stay() -> None:
    assert clean("naïve 😀") == "naïve 😀"


@given(st.text())
def test_whatever_comes_out_is_utf8(text: str) -> None:
    clean(text).encode("utf-8")


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_the_size_as_json_is_what_json_makes_of_it(text: str) -> None:
    assert json_bytes(text) == len(json.dumps(text, ensure_ascii=False).encode()) or any(
        char in text for char in "\n\r\t\b\f"
    )


@given(st.text(alphabet="a\x00😀", min_size=400, max_size=2000), st.integers(200, 1000))
def test_a_shortened_text_fits_and_says_how_much_is_left_out(text: str, size: int) -> None:
    short = shorten(text, size)
    if short != text:
        assert "characters left out]" in short
        assert json_bytes(short) <= size + 60
