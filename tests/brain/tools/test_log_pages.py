"""Pages of a log: bounded, oldest first, and each says how to go on."""

import re

from brain.session.entries import Entry
from brain.tools.log_pages import found, page
from brain.tools.own import READ_BYTES
from brain.tools.readable import heading, text_of


def said(position: int, text: str = "hi") -> Entry:
    """A message."""
    return Entry(
        position, f"e{position}", "user.message", {"content": [{"type": "text", "text": text}]}
    )


def shown(text: str) -> list[int]:
    """Positions of the events on a page."""
    return [int(each) for each in re.findall(r"^--- (\d+) ", text, re.MULTILINE)]


def test_events_are_shown_as_they_are_with_position_type_and_time() -> None:
    assert page([said(3, "a\nb")], "after", 2, 9).splitlines() == [
        "--- 3 user.message 1970-01-01T00:00:00Z",
        "a",
        "b",
        "[events 3 to 3 of 9; go on with brain__session_read before=3 or after=3]",
    ]


def test_what_does_not_fit_is_left_out_at_the_far_end_from_the_anchor() -> None:
    third = "x" * (READ_BYTES // 3)
    five = [said(n, third) for n in range(1, 6)]
    assert shown(page(five, "after", 0, 5)) == [1, 2]
    assert shown(page(five, "before", 6, 5)) == [4, 5]
    assert shown(page(five, "around", 3, 5)) == [2, 3]
    assert len(page(five, "after", 0, 5)) <= READ_BYTES + 300


def test_an_event_that_is_too_long_is_read_in_parts_that_join_to_the_whole() -> None:
    text = "".join(f"{n} ä\n" for n in range(9000))
    offset, parts = 0, []
    while True:
        told = page([said(1, text)], "around", 1, 1, offset)
        assert len(told.encode()) <= READ_BYTES + 200
        body = told.partition("\n")[2]
        cut = re.search(r"\n\[cut: \d+ characters more; go on .* offset=(\d+)\]", body)
        if cut is None:
            parts.append(body.rpartition("\n[events")[0])
            break
        parts.append(body[: cut.start()])
        offset = int(cut[1])
    assert "".join(parts) == text
    assert len(parts) > 2


def test_no_events_and_nothing_found_are_said() -> None:
    assert page([], "after", 3, 3) == "[no events there; the log's head is 3]"
    assert found({}, 1, more=False) == "[nothing found]\n[looked down to event 1]"
    more = found({2: "two", 9: "nine"}, 2, more=True)
    assert more.splitlines()[:2] == ["nine", "two"]
    assert "brain__session_search before=2" in more


def test_a_redacted_event_and_one_that_is_not_what_its_type_says_are_said_so() -> None:
    redacted = Entry(1, "e", "user.message", {"content": []}, redacted=True)
    assert text_of(redacted) == "[redacted]"
    assert text_of(Entry(1, "e", "user.message", {"content": 7})) == '{"content": 7}'
    odd = {"content": [7, {"type": "image"}, {"type": "text", "text": 1}]}
    assert text_of(Entry(1, "e", "agent.message", odd)).count("[a block of type") == 3
    assert heading(Entry(1, "e", "x", {}, time=1e30)) == "1 x"
