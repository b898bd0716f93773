"""YAML is read as a person means it, or refused at its line; what is written reads back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpal.mistake import Mistake
from carpal.yaml_in import read_mapping, write_mapping

ODD = ["no", "1e3", "0777", "12:30", "~", "", "2020-01-01", "=", "a\nb", "a\n", "\n a", "1_0"]
ODDER = [".inf", "- a", "a: b", "#x", "0x1f", "'", "|", "a \nb", "\x85", "\ufeffa", "true", "a\tb"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ODD + ODDER
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_is_written_reads_back_the_same(data: dict[str, Any]) -> None:
    assert read_mapping(write_mapping(data)).data == data


def test_text_over_many_lines_is_written_as_a_person_would() -> None:
    written = write_mapping({"system": "You fix bugs.\nRun the tests.\n", "model": "m"})
    assert written == "system: |\n  You fix bugs.\n  Run the tests.\nmodel: m\n"


def test_a_bare_word_is_what_it_looks_like() -> None:
    read = read_mapping(
        "a: true\nb: null\nc: 12\nd: 1.5\ne: text of words\nf: 12:30\ng: 2026-01-31\n"
        "h: 'no'\ni:\nj: -0.5e3\nno: key\n"
    )
    assert read.data == {
        "a": True,
        "b": None,
        "c": 12,
        "d": 1.5,
        "e": "text of words",
        "f": "12:30",
        "g": "2026-01-31",
        "h": "no",
        "i": None,
        "j": -500.0,
        "no": "key",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nname: no", "line 2: name: `no` is false to some readers of YAML"),
        ("a: [1, Yes]", "line 1: a[1]: `Yes` is true to some readers of YAML"),
        ("a: 0777", "line 1: a: `0777` is not the same number to all readers of YAML"),
        ("a: 1_000", "a: `1_000` is not the same number"),
        ("a: .nan", "a: `.nan` is not the same number"),
        ("a: 1\nb: 2\na: 3", "line 3: a: is given twice"),
        ("x:\n  a: 1\n  a: 2", "line 3: x.a: is given twice"),
        ("", "must be a mapping, lines of `key: value`"),
        ("just text", "must be a mapping"),
        ("- a\n- b", "must be a mapping"),
        ("a: !!python/object/apply:os.system ['true']", "the tag"),
        ("a: !!int '3'", "the tag"),
        ("? [a]\n: 1", "a key must be text"),
        ("<<: {a: 1}", "line 1: <<: a merge is not read"),
        ("a: {", "line 1: not YAML"),
        ("a:\n\tb: 1", "line 2: not YAML"),
        ("a: 1\n---\nb: 2", "not YAML: expected a single document"),
        ("a: *nobody", "not YAML: found undefined alias"),
        ("a: \x00", "not YAML"),
        ("a: " + "[" * 2000, "is nested too deeply"),
        ("a: " + "[" * 40 + "]" * 40, "is nested more than 30 deep"),
        ("a: &x [*x]", "is nested more than 30 deep"),
        ("a: '" + "x" * 300_000 + "'", "bytes, and may have"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_its_line(text: str, says: str) -> None:
    with pytest.raises(Mistake) as caught:
        read_mapping(text)
    assert says in str(caught.value)


def test_anchors_stand_for_what_they_name_and_not_for_ever_more() -> None:
    assert read_mapping("a: &x {b: 1}\nc: *x").data == {"a": {"b": 1}, "c": {"b": 1}}
    bomb = "a: &a [" + ",".join("x" * 9) + "]\n"
    for outer, inner in zip("bcdef", "abcde", strict=True):
        bomb += f"{outer}: &{outer} [" + ",".join([f"*{inner}"] * 9) + "]\n"
    with pytest.raises(Mistake, match="more than 10000 values"):
        read_mapping(bomb)


def test_a_key_is_found_at_its_line_and_an_unknown_one_at_what_is_around_it() -> None:
    read = read_mapping("hands:\n  shell:\n    resources:\n    - [a, b]\n    - [c, d]\n")
    assert read.line_of("hands.shell.resources[1]") == 5
    assert read.line_of("hands.shell.resources[1][0]") == 5
    assert read.line_of("hands.shell.type") == 2
    assert read.line_of("name") == 0


@pytest.mark.parametrize("number", ["1e999", "-1e400", "9.9E308"])
def test_a_number_that_is_too_large_for_one_is_refused_and_not_read_as_infinity(
    number: str,
) -> None:
    with pytest.raises(Mistake, match="is too large for a number") as caught:
        read_mapping(f"a: 1\nb: {number}\n")
    assert (caught.value.line, caught.value.key) == (2, "b")
    assert read_mapping(write_mapping({"a": number})).data == {"a": number}
