"""Events are read whatever is in them, and shown without harm to a terminal."""

import pytest

from carpal.operator.events import Printable, appender, data_of, printable, text_in
from carpal.v1 import types_pb2
from tests.operator.log import Log


@pytest.mark.parametrize("data", [b"", b"not json", b"[1]", b"\xff", b"[" * 100_000])
def test_data_that_is_no_object_reads_as_empty(data: bytes) -> None:
    assert data_of(types_pb2.Event(data=data)) == {}


def test_text_blocks_are_joined_and_other_blocks_are_named() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "image"}, "junk", {"text": 1}]
    assert text_in({"content": content}) == "a[image][block]"
    assert text_in({"content": "plain"}) == "plain"
    assert text_in({"content": [{"type": "thinking", "thinking": "hm"}]}) == "hm"
    assert text_in({}) == ""


def test_the_appender_is_read_from_the_source() -> None:
    assert appender(Log().add("x")) == ("brain", "brain-1")
    assert appender(types_pb2.Event(source="somebody")) == ("", "")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("50%\r100%\r\n", "50%\n100%\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("naïve ✓", "naïve ✓"),
        ("a\u202eb", "a\\u202eb"),
    ],
)
def test_control_characters_never_reach_a_terminal_wherever_the_text_is_cut(
    raw: str, shown: str
) -> None:
    assert printable(raw) == shown
    for at in range(len(raw) + 1):
        stream = Printable()
        assert stream.take(raw[:at]) + stream.take(raw[at:]) + stream.end() == shown


def test_an_escape_code_without_an_end_is_not_held_back_for_ever() -> None:
    stream = Printable()
    assert stream.take("\x1b[" + "1" * 100) == "\\x1b[" + "1" * 100
